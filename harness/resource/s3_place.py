"""Where an S3 store is: `//BUCKET[/PREFIX]` at Amazon, or `https://HOST[:PORT]/BUCKET[/PREFIX]` elsewhere."""

from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from asyncdlock._url import LockURL

_PORTS = {"http": 80, "https": 443}


class Place(NamedTuple):
    bucket: str
    prefix: str
    """Before the name of each object: empty, or with a slash at its end."""
    endpoint: str | None
    """None: Amazon's own."""
    region: str | None
    access_key: str
    secret_key: str

    @classmethod
    def parse(cls, text: str) -> "Place":
        """What follows `s3:`, with credentials before the host or bucket, and `?region=`.

        :raises ValueError: what is wrong, in one sentence that shows no secret.
        """
        url = LockURL.split(f"s3:{text}" if text.startswith("//") else text)
        options = dict(parse_qsl(url.query, keep_blank_values=True))
        region = options.pop("region", None)
        if options:
            raise ValueError(f"{min(options)!r} is no option of it: there is region alone")
        login, _, host = url.authority.rpartition("@")
        access_key, _, secret_key = (unquote(part) for part in login.partition(":"))
        path, endpoint = unquote(url.path).strip("/"), None
        if url.scheme in _PORTS:
            (address,) = url.addresses(_PORTS[url.scheme])
            endpoint = f"{url.scheme}://{address}"
        elif url.scheme == "s3" and host:
            path = f"{host}/{path}".strip("/")
        else:
            raise ValueError("write s3://BUCKET/PREFIX or s3:https://HOST:PORT/BUCKET/PREFIX")
        bucket, _, prefix = path.partition("/")
        if not bucket:
            raise ValueError("it names no bucket")
        if bool(access_key) != bool(secret_key):
            raise ValueError("an access key and its secret go together")
        return cls(bucket, f"{prefix}/" if prefix else "", endpoint, region, access_key, secret_key)

    def arguments(self) -> dict[str, str]:
        """Of botocore's client; what is not told it finds where it always looks."""
        told = {
            "endpoint_url": self.endpoint,
            "region_name": self.region or (self.endpoint and "us-east-1"),
            "aws_access_key_id": self.access_key,
            "aws_secret_access_key": self.secret_key,
        }
        return {name: value for name, value in told.items() if value}
