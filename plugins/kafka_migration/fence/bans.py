"""What a fence denies: an operation, on topics or groups of one cluster; and who could do it, by the ACLs there.

Each principal is denied by name. One denial for everybody would be shorter, and would stop the mirror's principal and
the reverse link as well, since a denial goes before whatever allows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kafka_migration.kafka.acls import Denied
from kafka_migration.kafka.cluster import Role
from kafka_migration.kafka.types import Acl
from kafka_migration.plans.producers import EVERYBODY


@dataclass(frozen=True, slots=True, kw_only=True)
class Ban:
    """``operation`` on resources of ``kind``, of the cluster ``side``. ``key`` is its name in the journal.

    ``rests``: once it holds nobody writes, so that log ends stand still. ``own`` are operations that the migration's
    own principal needs meanwhile. ``rehearses`` is the key of the fence that this one is a rehearsal of, "" for none:
    of the same denials it makes only those of the probe.
    """

    key: str
    side: Role
    kind: Denied
    operation: str
    rests: bool = False
    own: tuple[str, ...] = ()
    rehearses: str = ""

    def denial(self, name: str, principal: str) -> Acl:
        """The ACL by which ``principal`` is denied on the topic or group ``name``, from any host."""
        return Acl(
            resource_type=self.kind,
            resource=name,
            pattern="LITERAL",
            principal=principal,
            host="*",
            operation=self.operation,
            permission="DENY",
        )

    def allows(self, acl: Acl, names: Iterable[str]) -> bool:
        """Whether ``acl`` lets its principal do it on any of ``names``."""
        return (
            acl.permission == "ALLOW"
            and acl.operation in (self.operation, "ALL")
            and any(acl.is_on(self.kind, name) for name in names)
        )


#: Producers write to the source no more. The mirror reads on, and the reverse link may write.
WRITES = Ban(key="writes", side="source", kind="TOPIC", operation="WRITE", rests=True, own=("READ", "WRITE"))
#: Producers write to the target no more: they are about to go back to the source.
BACK_WRITES = Ban(key="back-writes", side="target", kind="TOPIC", operation="WRITE", rests=True, own=("READ", "WRITE"))
#: Nobody but the mirror writes to the target yet.
EARLY_WRITES = Ban(key="early-writes", side="target", kind="TOPIC", operation="WRITE", own=("READ", "WRITE"))
#: Groups that were moved read from the source no more.
GROUP_READS = Ban(key="group-reads", side="source", kind="GROUP", operation="READ")
BANS = (WRITES, BACK_WRITES, EARLY_WRITES, GROUP_READS)
#: What lifts each of them where it stands as it should, by its key.
LIFTED_BY = {
    WRITES.key: "`switch --back` lifts it",
    BACK_WRITES.key: "`switch` or `stop` lifts it, once producers are to write to the target again",
    EARLY_WRITES.key: "`switch`, `stop` or `cancel` lifts it",
    GROUP_READS.key: "`rollback` lifts it",
}
#: Nobody is kept from writing, whatever stands of these: nobody but the probe is denied, and nobody uses that.
REHEARSAL = replace(WRITES, key="rehearsal", rests=False, rehearses=WRITES.key)
BACK_REHEARSAL = replace(BACK_WRITES, key="back-rehearsal", rests=False, rehearses=BACK_WRITES.key)
REHEARSALS = (REHEARSAL, BACK_REHEARSAL)


def rehearsal_of(ban: Ban) -> Ban | None:
    """The rehearsal of ``ban``, None for what is not rehearsed."""
    return next((one for one in REHEARSALS if one.rehearses == ban.key), None)


def rehearsed_by(ban: Ban) -> Ban | None:
    """The fence that ``ban`` rehearses, None if it is no rehearsal."""
    return next((one for one in BANS if one.key == ban.rehearses), None)


def may(acls: Iterable[Acl], ban: Ban, names: Iterable[str]) -> frozenset[str]:
    """The principals that any of ``acls`` lets do what ``ban`` denies, on any of ``names``; EVERYBODY among them if an
    ACL lets everybody."""
    wanted = tuple(names)
    return frozenset(acl.principal for acl in acls if ban.allows(acl, wanted))


def is_open(acls: Iterable[Acl], ban: Ban, names: Iterable[str]) -> bool:
    """Whether an ACL lets everybody do it: then nobody knows who could."""
    return EVERYBODY in may(acls, ban, names)
