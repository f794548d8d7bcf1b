"""A client of a secure sum as a state machine: it answers each request of its edge once, or refuses it.

A refused request changes nothing. The keys live in this object alone: a sum that is repeated has other ones.
"""

from __future__ import annotations

import hmac

from hiflash.privacy.sums.keys import Keys
from hiflash.privacy.sums.masks import (
    add_mask,
    commit,
    common_secret,
    load_key,
    open_box,
    pair_key,
    seal,
    self_key,
    tag,
    usable,
)
from hiflash.privacy.sums.messages import (
    KEY_BYTES,
    Advertise,
    Agreed,
    Box,
    Boxes,
    Masked,
    Phase,
    Refused,
    Reveal,
    Roster,
    Shares,
    Survivors,
    Terms,
    Unmask,
    Words,
    pack,
    share_hash,
)
from hiflash.privacy.sums.shares import SECRET_BYTES
from hiflash.privacy.sums.signing import Signer, Verifier

__all__ = ["SumClient", "agreement", "check_advert"]


class SumClient:
    """One client in one secure sum. `phase` is the one that it answers next, "done" after the last."""

    def __init__(self, terms: Terms, client: int, signer: Signer, verifier: Verifier, keys: Keys) -> None:
        terms.check()
        if client not in terms.clients:
            raise Refused(f"client {client} is not one of this sum")
        self.terms, self.client = terms, client
        self.signer, self.verifier = signer, verifier
        self.phase: Phase | str = "advertise"
        self._keys = keys
        self._common: dict[int, bytes] = {}  # secrets in common with others, for boxes and tags
        self._roster = Roster(())
        self._own: tuple[bytes, bytes] = (b"", b"")  # this client's shares of its own secrets
        self._held: dict[
            int, tuple[bytes, bytes]
        ] = {}  # shares of seed and key, by the client that dealt them
        self._survivors: tuple[int, ...] = ()

    @property
    def senders(self) -> tuple[int, ...]:
        """Return the clients that dealt shares: this client's masks are those with them."""
        return tuple(sorted(self._held))

    def advertise(self) -> Advertise:
        """Return this client's public keys, signed."""
        self._expect("advertise")
        terms, client = self.terms, self.client
        mine = Advertise(
            client,
            self._keys.mask_key,
            self._keys.box_key,
            commit(self._keys.seed, terms, client),
            self.signer.credential,
        )
        signature = self.signer.sign(mine.content(terms))
        self._advert = Advertise(
            client, mine.mask_key, mine.box_key, mine.commitment, mine.credential, signature
        )
        self.phase = "share"
        return self._advert

    def share(self, roster: Roster) -> Shares:
        """Check the keys of the others and return this client's boxes for them."""
        self._expect("share")
        terms, others = self.terms, roster.clients
        self._check_clients(others, terms.clients, "the roster")
        for advert in roster.adverts:
            if advert.client == self.client:
                if advert != self._advert:
                    raise Refused(f"the roster has other keys of client {self.client} than its own")
                continue
            check_advert(advert, terms, self.verifier)
        keys = [key for advert in roster.adverts for key in (advert.mask_key, advert.box_key)]
        if len(set(keys)) < len(keys):
            raise Refused("the roster has the same key twice")
        seeds, secrets = self._keys.shares(terms.threshold, len(terms.clients))
        about, boxes, common = roster.digest(terms), {}, {}
        box_secret = load_key(self._keys.box_secret)
        for advert in roster.adverts:
            other, place = advert.client, terms.index(advert.client) - 1
            seed, secret = seeds[place], secrets[place]
            if other == self.client:
                own, sealed = (seed, secret), b""
            else:
                common[other] = common_secret(box_secret, advert.box_key)
                sealed = seal(common[other], terms, self.client, other, about, seed + secret)
            boxes[other] = Box(
                sealed,
                share_hash(terms, "seed", self.client, other, seed),
                share_hash(terms, "key", self.client, other, secret),
            )
        self._roster, self._common, self._own, self.phase = roster, common, own, "masked"
        return Shares(self.client, boxes)

    def receive(self, given: Boxes) -> None:
        """Open the boxes of the others; afterwards this client can mask its vector."""
        self._expect("masked")
        if self._held:
            raise Refused(f"client {self.client} has its boxes already")
        terms, about = self.terms, self._roster.digest(self.terms)
        self._check_clients(tuple(sorted((*given.boxes, self.client))), self._roster.clients, "the senders")
        held = {self.client: self._own}
        for sender, box in given.boxes.items():
            content = open_box(self._common[sender], terms, sender, self.client, about, box.sealed)
            if len(content) != 2 * SECRET_BYTES:
                raise Refused(f"its box for client {self.client} has {len(content)} bytes", sender)
            seed, secret = content[:SECRET_BYTES], content[SECRET_BYTES:]
            hashes = (
                share_hash(terms, "seed", sender, self.client, seed),
                share_hash(terms, "key", sender, self.client, secret),
            )
            if hashes != (box.seed_hash, box.key_hash):
                raise Refused(f"the shares for client {self.client} are others than it said", sender)
            held[sender] = (seed, secret)
        self._held = held

    def mask(self, vector: Words) -> Masked:
        """Return a vector (`FixedPoint.encode`) under this client's masks; it is changed in place."""
        self._expect("masked")
        terms = self.terms
        if not self._held:
            raise Refused(f"client {self.client} has no boxes yet")
        if vector.dtype.str != "<u4" or vector.shape != (terms.words,):
            raise ValueError(f"a vector of this sum has {terms.words} words, got {vector.shape}")
        adverts = {advert.client: advert for advert in self._roster.adverts}
        secret = load_key(self._keys.mask_secret)
        add_mask(vector, self_key(self._keys.seed, terms, self.client))
        for other in self.senders:
            if other != self.client:
                key = pair_key(secret, adverts[other].mask_key, terms, self.client, other)
                add_mask(vector, key, minus=other < self.client)
        self.phase = "agree"
        return Masked(self.client, vector)

    def agree(self, named: Survivors) -> Agreed:
        """Tell every other survivor what this client has seen, once."""
        self._expect("agree")
        self._check_clients(named.clients, self.senders, "the survivors")
        self._survivors, self.phase = named.clients, "unmask"
        content = self._agreement()
        others = (other for other in named.clients if other != self.client)
        return Agreed(
            self.client,
            {other: tag(self._common[other], self.terms, self.client, other, content) for other in others},
        )

    def reveal(self, asked: Unmask) -> Reveal:
        """Check that enough others saw the same, and return the shares that open the sum, once.

        A survivor's seed opens its own mask; a lost client's key opens its masks with others. Whoever had
        both could open a single vector, so nobody ever gets both. If nobody was lost, no key is revealed, and
        no agreement is needed: the seeds open the sum of all senders or nothing.
        """
        if self.phase == "agree" and not asked.tags:
            return self._revealed(self.senders)
        self._expect("unmask")
        if not set(asked.tags) < set(self._survivors) or self.client in asked.tags:
            raise Refused("it shows tags of others than the survivors")
        content, terms = self._agreement(), self.terms
        wrong = [
            other
            for other, shown in sorted(asked.tags.items())
            if not hmac.compare_digest(shown, tag(self._common[other], terms, other, self.client, content))
        ]
        agree = 1 + len(asked.tags) - len(wrong)
        if agree < terms.threshold:
            blamed = f"; the tag of client {wrong[0]} is wrong" if wrong else ""
            raise Refused(f"{agree} clients have seen the same, and {terms.threshold} are needed{blamed}")
        return self._revealed(self._survivors)

    def _revealed(self, survivors: tuple[int, ...]) -> Reveal:
        """Return one kind of share of each client, and forget all of them."""
        seeds = {other: seed for other, (seed, _) in self._held.items() if other in survivors}
        keys = {other: key for other, (_, key) in self._held.items() if other not in survivors}
        self.phase = "done"
        self._held, self._common = {}, {}
        return Reveal(self.client, seeds, keys)

    def _agreement(self) -> bytes:
        return agreement(self.terms, self._roster, self.senders, self._survivors)

    def _expect(self, phase: Phase) -> None:
        if self.phase != phase:
            raise Refused(f"client {self.client} is at {self.phase}, and was asked to {phase}")

    def _check_clients(self, named: tuple[int, ...], known: tuple[int, ...], what: str) -> None:
        """Raise unless a list of clients is sorted, known, long enough, and has this client."""
        if list(named) != sorted(set(named)):
            raise Refused(f"{what} are not sorted, or one is there twice")
        if unknown := sorted(set(named) - set(known)):
            raise Refused(f"{what} have client {unknown[0]}, which was not there before")
        if self.client not in named:
            raise Refused(f"{what} are without client {self.client}, which was asked")
        if len(named) < self.terms.threshold:
            raise Refused(f"{what} are {len(named)}, and {self.terms.threshold} are needed")


def check_advert(advert: Advertise, terms: Terms, verifier: Verifier) -> None:
    """Raise `Refused`, with the client's name, unless it advertises usable keys under its own signature."""
    sizes = (len(advert.mask_key), len(advert.box_key), len(advert.commitment))
    if sizes != (KEY_BYTES,) * 3 or advert.mask_key == advert.box_key:
        raise Refused("its keys are not two different ones of 32 bytes, with a commitment", advert.client)
    if not (usable(advert.mask_key) and usable(advert.box_key)):
        raise Refused("one of its keys is a point of small order, which gives no secret", advert.client)
    verifier.check(advert.client, advert.credential, advert.content(terms), advert.signature)


def agreement(terms: Terms, roster: Roster, senders: tuple[int, ...], survivors: tuple[int, ...]) -> bytes:
    """Return what clients agree on before they reveal shares: all that they have seen of a sum."""
    lists = (pack(*senders), pack(*survivors))
    return pack(b"agree", terms.context(), roster.digest(terms), *lists)
