from __future__ import annotations

import pytest

from minedraft.errors import IncompatibleWorkerError
from minedraft.packets.spec import Transport
from minedraft.plans import WorkerIdentity, WorkerInfo
from minedraft.services.coordinator.workers.transport_choice import TransportChoice
from minedraft.types import ModelInfo

CPU = ("local", "gloo", "grpc")
CUDA = (*CPU, "nccl")


HERE = "127.0.0.1:50052"


def worker(instance_id, transports, link_address=""):
    model = ModelInfo("m", 10, 10, "", "float32")
    identity = WorkerIdentity(instance_id, 1, 0, 0, "")
    return WorkerInfo(identity, model, transports, link_address=link_address)


@pytest.mark.parametrize(
    ("verifier", "drafter", "chosen"),
    [
        (CUDA, CUDA, Transport.NCCL),
        (CUDA, CPU, Transport.GLOO),
        (CPU, CUDA, Transport.GLOO),
        (CPU, CPU, Transport.GLOO),
        (CPU, ("grpc",), Transport.GRPC),
    ],
)
def test_auto_takes_the_best_that_both_have(verifier, drafter, chosen):
    choice = TransportChoice("auto", HERE)
    assert choice.choose(worker("v", verifier), worker("d", drafter)) is chosen


@pytest.mark.parametrize("name", ["local", "gloo", "grpc", "nccl"])
def test_what_is_configured_is_taken(name):
    choice = TransportChoice(name, HERE)
    assert choice.choose(worker("v", CUDA), worker("d", CUDA)) is Transport(name)


@pytest.mark.parametrize(("verifier", "drafter"), [(CUDA, CPU), (CPU, CUDA), (CPU, CPU)])
def test_nccl_that_one_end_lacks_is_refused_naming_what_both_have(verifier, drafter):
    with pytest.raises(IncompatibleWorkerError) as refused:
        TransportChoice("nccl", HERE).choose(worker("v", verifier), worker("d", drafter))
    assert str(refused.value) == (
        f"link=nccl: the verifier has {', '.join(verifier)}; the drafter has {', '.join(drafter)}"
    )


def test_workers_that_share_nothing_are_refused():
    with pytest.raises(IncompatibleWorkerError, match="the drafter has none"):
        TransportChoice("auto", HERE).choose(worker("v", CPU), worker("d", ()))


def test_auto_leaves_nccl_where_it_failed_and_only_there():
    choice = TransportChoice("auto", HERE)
    verifier, drafter, other = worker("v", CUDA), worker("d", CUDA), worker("d2", CUDA)
    choice.note_failure(Transport.NCCL, verifier, drafter)
    assert choice.choose(verifier, drafter) is Transport.GLOO
    assert choice.choose(verifier, other) is Transport.NCCL


def test_auto_goes_through_all_of_them_and_begins_again():
    choice = TransportChoice("auto", HERE)
    verifier, drafter = worker("v", CUDA), worker("d", CUDA)
    tried = []
    for _ in range(4):
        tried.append(choice.choose(verifier, drafter))
        choice.note_failure(tried[-1], verifier, drafter)
    assert tried == [Transport.NCCL, Transport.GLOO, Transport.GRPC, Transport.NCCL]
    assert choice.failed(verifier, drafter) == (Transport.NCCL,)


@pytest.mark.parametrize("name", ["nccl", "gloo"])
def test_what_was_asked_for_is_tried_again(name):
    choice = TransportChoice(name, HERE)
    verifier, drafter = worker("v", CUDA), worker("d", CUDA)
    choice.note_failure(Transport(name), verifier, drafter)
    assert choice.choose(verifier, drafter) is Transport(name)
    assert choice.failed(verifier, drafter) == ()


@pytest.mark.parametrize(
    ("dialled", "link_address", "chosen"),
    [
        (HERE, "", Transport.GLOO),
        ("localhost:1", "", Transport.GLOO),
        ("[::1]:1", "", Transport.GLOO),
        ("10.0.0.5:1", "", Transport.GRPC),
        ("verifier:50052", "", Transport.GRPC),
        (HERE, "verifier:50052", Transport.GRPC),
        ("verifier:50052", HERE, Transport.GLOO),
    ],
)
def test_auto_takes_gloo_on_one_machine_only(dialled, link_address, chosen):
    choice = TransportChoice("auto", dialled)
    assert choice.choose(worker("v", CPU, link_address), worker("d", CPU)) is chosen


def test_beyond_one_machine_auto_falls_back_from_nccl_to_grpc_and_begins_again():
    choice = TransportChoice("auto", "verifier:50052")
    verifier, drafter = worker("v", CUDA), worker("d", CUDA)
    tried = []
    for _ in range(3):
        tried.append(choice.choose(verifier, drafter))
        choice.note_failure(tried[-1], verifier, drafter)
    assert tried == [Transport.NCCL, Transport.GRPC, Transport.NCCL]


def test_gloo_that_is_asked_for_is_taken_beyond_one_machine():
    choice = TransportChoice("gloo", "verifier:50052")
    assert choice.choose(worker("v", CPU), worker("d", CPU)) is Transport.GLOO
