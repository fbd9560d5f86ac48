"""A connection means the same to librdkafka, kafka-python and the JVM, or is refused by name."""

from __future__ import annotations

import pickle
import random
import string
import traceback
from collections.abc import Mapping
from pathlib import Path

import pytest

from kafka_migration.domain.errors import BadInput
from kafka_migration.kafka import jaas
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.properties import SECRETS

PLAINTEXT = {"bootstrap.servers": "one:9092,two:9093"}
SASL = {
    "bootstrap.servers": "one:9092",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "mover",
    "sasl.password": "pa\\ss \"word'=,;",
}
OIDC = {
    "bootstrap.servers": "one:9092",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "mover",
    "sasl.oauthbearer.client.secret": "s3cret-of-the-client",
    "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
    "sasl.oauthbearer.scope": "kafka",
    "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-2",
}

KERBEROS = {
    "bootstrap.servers": "one:9092",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "GSSAPI",
    "sasl.kerberos.principal": "mover@EXAMPLE.COM",
    "sasl.kerberos.keytab": "/etc/mover.keytab",
}
LOGIN = "com.sun.security.auth.module.Krb5LoginModule"


ENDPOINT = "sasl.oauthbearer.token.endpoint.url"


def connection(properties: Mapping[str, object]) -> ClusterConnection:
    return ClusterConnection("kafka_source", properties)  # type: ignore[arg-type]


def refused(properties: Mapping[str, object]) -> BadInput:
    with pytest.raises(BadInput) as caught:
        connection(properties).jvm()
    assert caught.value.file == "connection kafka_source"
    assert caught.value.remedy
    return caught.value


@pytest.fixture
def pem_files(tmp_path: Path) -> dict[str, str]:
    """Files whose content nobody verifies: only their kind matters to a translation."""
    texts = {
        "ca": "-----BEGIN CERTIFICATE-----\nca\n",
        "cert": "-----BEGIN CERTIFICATE-----\ncert\n",
        "key": "-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n",
        "locked": "-----BEGIN ENCRYPTED PRIVATE KEY-----\naGVsbG8=\n-----END ENCRYPTED PRIVATE KEY-----\n",
        "old": "-----BEGIN RSA PRIVATE KEY-----\naGVsbG8=\n-----END RSA PRIVATE KEY-----\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return {name: str(tmp_path / name) for name in texts}


class TestTranslation:
    def test_plaintext_reaches_all_three_clients(self) -> None:
        it = connection(PLAINTEXT)
        assert it.librdkafka() == PLAINTEXT | {"security.protocol": "PLAINTEXT"}
        assert it.kafka_python() == {
            "bootstrap_servers": "one:9092,two:9093",
            "security_protocol": "PLAINTEXT",
        }
        assert it.jvm() == PLAINTEXT | {"security.protocol": "PLAINTEXT"}

    def test_numbers_and_booleans_of_json_are_taken_as_text(self) -> None:
        it = connection(PLAINTEXT | {"socket.timeout.ms": 5000, "enable.ssl.certificate.verification": True})
        assert it.librdkafka()["socket.timeout.ms"] == "5000"
        assert it.kafka_python()["request_timeout_ms"] == 5000
        assert it.jvm()["request.timeout.ms"] == "5000"

    def test_plain_password_is_escaped_for_the_jvm_only(self) -> None:
        it = connection(SASL)
        assert it.librdkafka()["sasl.password"] == SASL["sasl.password"]
        assert it.kafka_python()["sasl_plain_password"] == SASL["sasl.password"]
        assert it.jvm()["sasl.jaas.config"] == (
            "org.apache.kafka.common.security.plain.PlainLoginModule required"
            ' username="mover" password="pa\\\\ss \\"word\'=,;";'
        )

    def test_scram_username_is_escaped_for_kafka_python_only(self) -> None:
        it = connection(SASL | {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "a=b,c"})
        assert it.kafka_python()["sasl_plain_username"] == "a=3Db=2Cc"
        assert it.librdkafka()["sasl.username"] == "a=b,c"
        assert 'ScramLoginModule required username="a=b,c"' in it.jvm()["sasl.jaas.config"]

    def test_token_endpoint_reaches_all_three_clients(self) -> None:
        it = connection(OIDC)
        assert it.librdkafka()["sasl.oauthbearer.token.endpoint.url"] == "https://login.example/token"
        provider = it.kafka_python()["sasl_oauth_token_provider"]
        assert provider.extensions() == {"logicalCluster": "lkc-1", "identityPoolId": "pool-2"}  # type: ignore[attr-defined]
        jvm = it.jvm()
        assert 'clientSecret="s3cret-of-the-client" scope="kafka"' in jvm["sasl.jaas.config"]
        assert 'extension_logicalCluster="lkc-1"' in jvm["sasl.jaas.config"]
        assert it.jvm_system_properties() == {
            "org.apache.kafka.sasl.oauthbearer.allowed.urls": "https://login.example/token"
        }

    def test_tls_with_certificate_and_key_reaches_all_three_clients(self, pem_files: dict[str, str]) -> None:
        it = connection(
            PLAINTEXT
            | {
                "security.protocol": "ssl",
                "ssl.ca.location": pem_files["ca"],
                "ssl.certificate.location": pem_files["cert"],
                "ssl.key.location": pem_files["key"],
            }
        )
        assert it.librdkafka()["ssl.endpoint.identification.algorithm"] == "https"
        python = it.kafka_python()
        assert (python["ssl_cafile"], python["ssl_check_hostname"]) == (pem_files["ca"], True)
        jvm = it.jvm()
        assert jvm["ssl.truststore.type"] == jvm["ssl.keystore.type"] == "PEM"
        assert jvm["ssl.truststore.location"] == pem_files["ca"]
        assert jvm["ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY")
        assert jvm["ssl.keystore.certificate.chain"].startswith("-----BEGIN CERTIFICATE")

    def test_certificate_and_key_in_one_file_stay_out_of_the_jvms_properties(self, pem_files: dict[str, str]) -> None:
        properties = {"security.protocol": "SSL", "ssl.key.location": pem_files["key"]}
        jvm = connection(PLAINTEXT | properties | {"ssl.certificate.location": pem_files["key"]}).jvm()
        assert jvm["ssl.keystore.location"] == pem_files["key"]
        assert "ssl.keystore.key" not in jvm

    def test_host_names_unchecked_means_so_for_all_three_clients(self) -> None:
        it = connection(PLAINTEXT | {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "none"})
        assert it.librdkafka()["ssl.endpoint.identification.algorithm"] == "none"
        assert it.kafka_python()["ssl_check_hostname"] is False
        assert it.jvm()["ssl.endpoint.identification.algorithm"] == ""

    def test_names_of_java_and_old_librdkafka_are_translated(self, pem_files: dict[str, str]) -> None:
        it = connection(
            {
                "metadata.broker.list": "one:9092",
                "security.protocol": "SASL_SSL",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": pem_files["ca"],
                "sasl.mechanisms": "scram-sha-256",
                "sasl.jaas.config": jaas.entry(
                    "org.apache.kafka.common.security.scram.ScramLoginModule",
                    {"username": "me", "password": 'a"\\b'},
                ),
                "request.timeout.ms": "7000",
            }
        )
        assert it.librdkafka() == {
            "bootstrap.servers": "one:9092",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": pem_files["ca"],
            "ssl.endpoint.identification.algorithm": "https",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "me",
            "sasl.password": 'a"\\b',
            "socket.timeout.ms": "7000",
        }

    def test_properties_of_single_consumers_are_left_to_each_client(self) -> None:
        it = connection(PLAINTEXT | {"group.id": "somebody", "auto.offset.reset": "earliest"})
        assert "group.id" not in it.librdkafka()

    def test_what_kafka_python_gets_survives_pickling(self) -> None:
        for properties in (PLAINTEXT, SASL, OIDC):
            it = connection(properties)
            assert pickle.loads(pickle.dumps(it)) == it
            assert pickle.loads(pickle.dumps(it.kafka_python())).keys() == it.kafka_python().keys()


class TestRefusal:
    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"bootstrap.servers": ""}, "bootstrap.servers"),
            ({"bootstrap.servers": "one"}, "bootstrap.servers"),
            ({"bootstrap.servers": "SSL://one:9092"}, "bootstrap.servers"),
            ({"bootstrap.servers": "one:9092,"}, "bootstrap.servers"),
            ({"security.protocol": "TLS"}, "security.protocol"),
            ({"security.protocol": "SASL_SSL"}, "sasl.mechanism"),
            ({"sasl.password": "x"}, "sasl.password"),
            ({"ssl.ca.location": "/ca.pem"}, "ssl.ca.location"),
            ({"socket.timeout.ms": "soon"}, "socket.timeout.ms"),
            ({"ssl.ca.pem": "-----BEGIN"}, "ssl.ca.pem"),
            ({"enable.ssl.certificate.verification": "false"}, "enable.ssl.certificate.verification"),
            ({"security.protocol": "SSL", "ssl.truststore.location": "/a.jks"}, "ssl.truststore.location"),
            ({"security.protocol": "SSL", "ssl.keystore.type": "JKS"}, "ssl.keystore.type"),
            ({"security.protocol": "SSL", "ssl.key.location": "/key"}, "ssl.certificate.location"),
            ({"security.protocol": "SSL", "ssl.ca.location": "/no/such/file"}, "ssl.ca.location"),
            ({"metadata.broker.list": "other:9092"}, "metadata.broker.list"),
            ({"client.id": "two\nlines"}, "client.id"),
            ({"oauth_cb": "package.function"}, "oauth_cb"),
            ({"queue.buffering.max.ms": "5"}, "queue.buffering.max.ms"),
        ],
    )
    def test_property_is_named_with_its_remedy(self, change: dict[str, str], field: str) -> None:
        assert refused(PLAINTEXT | change).field == field

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"sasl.mechanism": "DIGEST-MD5"}, "sasl.mechanism"),
            ({"sasl.mechanism": "GSSAPI"}, "sasl.username"),
            ({"sasl.kerberos.principal": "mover"}, "sasl.kerberos.principal"),
            ({"sasl.username": ""}, "sasl.username"),
            ({"sasl.password": "line\nend"}, "sasl.password"),
            ({"sasl.oauthbearer.scope": "kafka"}, "sasl.oauthbearer.scope"),
            ({"sasl.mechanism": "OAUTHBEARER"}, "sasl.oauthbearer.method"),
            ({"sasl.jaas.config": "com.example.Module required token=x;"}, "sasl.jaas.config"),
        ],
    )
    def test_sasl_property_is_named_with_its_remedy(self, change: dict[str, str], field: str) -> None:
        assert refused(SASL | change).field == field

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"sasl.kerberos.principal": ""}, "sasl.kerberos.principal"),
            ({"sasl.kerberos.keytab": ""}, "sasl.kerberos.keytab"),
            ({"sasl.kerberos.keytab": "mover.keytab"}, "sasl.kerberos.keytab"),
            ({"sasl.kerberos.keytab": "/no/such.keytab"}, "sasl.kerberos.keytab"),
            ({"sasl.kerberos.kinit.cmd": "kinit"}, "sasl.kerberos.kinit.cmd"),
            ({"sasl.oauthbearer.scope": "kafka"}, "sasl.oauthbearer.scope"),
            (
                {"sasl.jaas.config": f'{LOGIN} required keyTab="/other" principal="mover@EXAMPLE.COM";'},
                "sasl.kerberos.keytab",
            ),
            ({"sasl.jaas.config": f"{LOGIN} required useTicketCache=true;"}, "sasl.jaas.config"),
            ({"security.protocol": "SSL"}, "sasl.mechanism"),
        ],
    )
    def test_kerberos_property_is_named_with_its_remedy(self, change: dict[str, str], field: str) -> None:
        assert refused(KERBEROS | change).field == field

    @pytest.mark.parametrize(
        "url",
        [
            "http://login.example/token",
            "http://10.0.0.1/token",
            "ftp://127.0.0.1/",
            "https:///token",
            "https://a:b@c/t",
        ],
    )
    def test_token_endpoint_to_which_the_secret_would_go_in_clear_is_refused(self, url: str) -> None:
        assert refused(OIDC | {ENDPOINT: url}).field == ENDPOINT

    @pytest.mark.parametrize(
        "url", ["https://login.example/token", "http://127.0.0.1:8/t", "http://localhost/t", "http://[::1]/t"]
    )
    def test_token_endpoint_that_nobody_listens_to_on_the_way_is_taken(self, url: str) -> None:
        assert ClusterConnection("c", OIDC | {ENDPOINT: url}).properties[ENDPOINT] == url

    @pytest.mark.parametrize(
        ("properties", "what"),
        [
            (SASL, "the password"),
            (SASL | {"security.protocol": "SASL_SSL"}, ""),
            (SASL | {"sasl.mechanism": "SCRAM-SHA-256"}, ""),
            (OIDC, "the token"),
            (KERBEROS | {"security.protocol": "SASL_PLAINTEXT"}, ""),
            (OIDC | {"security.protocol": "SASL_SSL"}, ""),
            (PLAINTEXT, ""),
        ],
    )
    def test_credentials_that_cross_the_network_as_they_are_are_known(
        self, properties: dict[str, str], what: str
    ) -> None:
        assert ClusterConnection("c", properties).sent_in_clear == what

    def test_pkcs1_key_is_refused_with_the_command_that_converts_it(self, pem_files: dict[str, str]) -> None:
        files = {"ssl.certificate.location": pem_files["cert"], "ssl.key.location": pem_files["old"]}
        error = refused(PLAINTEXT | {"security.protocol": "SSL"} | files)
        assert "openssl pkcs8" in error.remedy

    def test_encrypted_key_without_password_is_refused_before_openssl_asks(self, pem_files: dict[str, str]) -> None:
        files = {"ssl.certificate.location": pem_files["cert"], "ssl.key.location": pem_files["locked"]}
        assert refused(PLAINTEXT | {"security.protocol": "SSL"} | files).field == "ssl.key.password"


ALPHABET = string.ascii_letters + string.digits + "\"'\\=,;:{}[]()<>%$ äß€"


def secret_properties(chance: random.Random) -> tuple[dict[str, str], set[str]]:
    """A random connection, valid or spoilt in one way, and its secrets."""
    secret = "".join(chance.choices(ALPHABET, k=chance.randint(12, 40)))
    base = dict(chance.choice([SASL, OIDC, SASL | {"sasl.mechanism": "SCRAM-SHA-256"}]))
    secrets = {name for name in base if name in SECRETS}
    for name in secrets:
        base[name] = secret
    spoil = chance.choice(["", "misspelt", "unknown", "protocol", "servers", "control", "jaas"])
    if spoil == "misspelt":
        base["sasl.pasword"] = secret
    elif spoil == "unknown":
        base["ssl.keystore.password"] = secret
    elif spoil == "protocol":
        base["security.protocol"] = "PLAINTEXT"
    elif spoil == "servers":
        base["bootstrap.servers"] = "nowhere"
    elif spoil == "control":
        base[next(iter(secrets))] = secret + "\n" + secret
    elif spoil == "jaas":
        base["sasl.jaas.config"] = f'org.Plain required password="{jaas.escaped(secret)}";'
    return base, {secret}


@pytest.mark.parametrize("seed", range(20))
def test_secret_never_shows_in_texts_or_errors(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(50):
        properties, secrets = secret_properties(chance)
        assert_never_shown(properties, secrets)


def assert_never_shown(properties: dict[str, str], secrets: set[str]) -> None:
    try:
        it = connection(properties)
        shown = [repr(it), str(it), f"{it}", repr(it.kafka_python().get("sasl_oauth_token_provider"))]
        assert it.secrets() >= secrets
    except BadInput as error:
        shown = [
            str(error),
            repr(error),
            repr(error.__dict__),
            "".join(traceback.format_exception_only(error)),
        ]
    for text in shown:
        for secret in secrets:
            assert secret not in text
            assert jaas.escaped(secret) not in text


@pytest.mark.parametrize("seed", range(10))
def test_jaas_options_come_back_as_they_were_written(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(50):
        names = ("username", "password")
        options = {name: "".join(chance.choices(ALPHABET, k=chance.randint(1, 30))) for name in names}
        text = jaas.entry("org.apache.kafka.common.security.plain.PlainLoginModule", options)
        assert jaas.options(text) == options


def test_keytab_and_principal_are_taken_from_a_login_module() -> None:
    login = f'{LOGIN} required useKeyTab=true keyTab="/etc/mover.keytab" principal="mover@X" serviceName="broker";'
    without = {name: value for name, value in KERBEROS.items() if not name.startswith("sasl.kerberos.")}
    found = connection(without | {"sasl.jaas.config": login}).properties
    assert found == without | {
        "sasl.kerberos.principal": "mover@X",
        "sasl.kerberos.keytab": "/etc/mover.keytab",
        "sasl.kerberos.service.name": "broker",
    }


def test_jaas_escapes_of_letters_are_not_guessed() -> None:
    assert jaas.options('a.PlainLoginModule required username="a\\tb" password="x";') is None
