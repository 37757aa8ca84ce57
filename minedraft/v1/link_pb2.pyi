from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class SendPacketsRequest(_message.Message):
    __slots__ = ("link_name", "packet", "ends")
    LINK_NAME_FIELD_NUMBER: _ClassVar[int]
    PACKET_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    link_name: str
    packet: bytes
    ends: bool
    def __init__(self, link_name: _Optional[str] = ..., packet: _Optional[bytes] = ..., ends: bool = ...) -> None: ...

class SendPacketsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetKeyRequest(_message.Message):
    __slots__ = ("link_name", "key", "value")
    LINK_NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    link_name: str
    key: str
    value: bytes
    def __init__(self, link_name: _Optional[str] = ..., key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class SetKeyResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetKeyRequest(_message.Message):
    __slots__ = ("link_name", "key", "timeout_s")
    LINK_NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    link_name: str
    key: str
    timeout_s: float
    def __init__(self, link_name: _Optional[str] = ..., key: _Optional[str] = ..., timeout_s: _Optional[float] = ...) -> None: ...

class GetKeyResponse(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    def __init__(self, value: _Optional[bytes] = ...) -> None: ...
