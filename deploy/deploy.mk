# Deployment checks; included by the Makefile. Tools of their own live in an environment of their own.
DEPLOY_VENV := .venv-deploy
DEPLOY_BIN := $(DEPLOY_VENV)/bin
DEPLOY_STAMP := $(DEPLOY_VENV)/.stamp
DEPLOY_OUT := out/deploy
OVERLAYS := $(notdir $(wildcard deploy/k8s/overlays/*))
# The oldest and the newest API that the manifests are checked against.
K8S_VERSIONS := 1.33 1.37
# no: leave the building of the image out.
IMAGE ?= yes

.PHONY: deploy-check deploy-render deploy-schemas deploy-policy deploy-lint deploy-test deploy-image

deploy-check: deploy-schemas deploy-policy deploy-lint deploy-test deploy-image ## manifests, Containerfile, image (IMAGE=no: not that)

$(DEPLOY_STAMP): deploy/tools.txt
	@echo '--- deploy: tools in $(DEPLOY_VENV)'
	@test -x $(DEPLOY_BIN)/python || $(PYTHON) -m venv $(DEPLOY_VENV)
	@echo '*' > $(DEPLOY_VENV)/.gitignore
	@$(DEPLOY_BIN)/python -m pip install -qq -r deploy/tools.txt
	@touch $@

deploy-render:
	@command -v kubectl >/dev/null || { echo 'deploy-check: needs kubectl (kubectl kustomize renders the overlays)' >&2; exit 1; }
	@mkdir -p $(DEPLOY_OUT)
	@set -e; for overlay in $(OVERLAYS); do \
	  kubectl kustomize deploy/k8s/overlays/$$overlay > $(DEPLOY_OUT)/$$overlay.yaml; done

# Kubernetes' own schemas, strictly; kinds they lack must be in deploy/schemas.
deploy-schemas: $(DEPLOY_STAMP) deploy-render
	@set -e; for overlay in $(OVERLAYS); do for version in $(K8S_VERSIONS); do \
	  $(DEPLOY_BIN)/kubernetes-validate --quiet --strict -k $$version $(DEPLOY_OUT)/$$overlay.yaml; \
	  echo "schemas: $$overlay is valid for Kubernetes $$version"; done; done
	@$(DEPLOY_BIN)/python deploy/check_components.py $(K8S_VERSIONS)

# What is left out: CKV_K8S_11, CPU limits: they stop threads in the middle of a step. CKV_K8S_15,
# pull always: a registry that is away would keep pods from restarting. CKV_K8S_43, digests: known
# only once an image is pushed; docs/operations.md asks for them.
deploy-policy: $(DEPLOY_STAMP) deploy-render
	@set -e; for overlay in $(OVERLAYS); do \
	  $(DEPLOY_BIN)/checkov --file $(DEPLOY_OUT)/$$overlay.yaml --framework kubernetes --compact --quiet \
	    --skip-download --skip-check CKV_K8S_11,CKV_K8S_15,CKV_K8S_43; \
	  echo "policy: $$overlay passes checkov"; done

deploy-lint: $(DEPLOY_STAMP)
	@$(DEPLOY_BIN)/hadolint deploy/docker/Containerfile && echo 'lint: Containerfile passes hadolint'

deploy-test: $(STAMP)
	$(BIN)/pytest tests/deploy $(PYTEST_ARGS)

deploy-image: $(STAMP)
	@IMAGE=$(IMAGE) deploy/docker/check_image.sh $(BIN)/python out/images/check
