from __future__ import annotations

from minedraft.security.secret import security_in


def test_a_secret_that_is_mounted_is_used_and_one_that_is_not_is_not_missed(tmp_path):
    assert not security_in(tmp_path).has_files
    (tmp_path / "tls.crt").touch()
    found = security_in(tmp_path)
    assert found.is_mtls
    assert (found.tls_key, found.tls_ca) == (str(tmp_path / "tls.key"), str(tmp_path / "ca.crt"))
