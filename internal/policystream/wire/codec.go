// SPDX-License-Identifier: Apache-2.0

// Package wire is the protocol between agents and controllers about policies: its messages, and the
// encoding of intent as items. An item is identified by the digest of its encoded bytes, so that an
// agent that reconnects is sent only the items that it lacks.
package wire

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
)

// DigestSize is the length of a Digest in bytes. An attacker that writes policies may choose what
// is in an item, and has to try 2⁶⁴ of them before two have the same digest.
const DigestSize = 16

// Digest stands for an encoded item.
type Digest [DigestSize]byte

// DigestOf are the first bytes of the SHA-256 of an encoded item.
func DigestOf(item []byte) Digest {
	sum := sha256.Sum256(item)
	return Digest(sum[:DigestSize])
}

// Digests splits a message's field into digests.
func Digests(field []byte) ([]Digest, error) {
	if len(field)%DigestSize != 0 {
		return nil, fmt.Errorf("%d bytes are not a number of digests", len(field))
	}
	list := make([]Digest, 0, len(field)/DigestSize)
	for ; len(field) > 0; field = field[DigestSize:] {
		list = append(list, Digest(field[:DigestSize]))
	}
	return list, nil
}

// ID names an item: there is one of each at a time.
type ID struct {
	Kind Key_Kind
	Key  string
}

func (id ID) String() string {
	switch id.Kind {
	case Key_RULE:
		return "rule " + id.Key
	case Key_SUBJECT:
		return "subject " + id.Key
	case Key_PEER:
		return "peer " + id.Key
	}
	return fmt.Sprintf("item of kind %d %s", id.Kind, id.Key)
}

// The IDs of items.
func RuleID(id string) ID     { return ID{Key_RULE, id} }
func SubjectID(key string) ID { return ID{Key_SUBJECT, key} }
func PeerID(key string) ID    { return ID{Key_PEER, key} }

// Message is the ID as it is sent.
func (id ID) Message() *Key { return &Key{Kind: id.Kind, Key: id.Key} }

// IDOf reads a Key that was received.
func IDOf(k *Key) (ID, error) {
	id := ID{k.GetKind(), k.GetKey()}
	switch {
	case id.Kind < Key_RULE || id.Kind > Key_PEER:
		return ID{}, fmt.Errorf("key %q: kind %d is not known", id.Key, id.Kind)
	case id.Key == "":
		return ID{}, errors.New("a key is empty")
	}
	return id, nil
}

// deterministic gives what is equal equal bytes, of one release at least. Two replicas of different
// ones may differ, which costs an agent that moves from one to the other that everything is sent.
var deterministic = proto.MarshalOptions{Deterministic: true}

// EncodeRule makes an item of a Rule.
func EncodeRule(r intent.Rule) []byte {
	m := &Rule{
		Id: r.ID, Policy: refMessage(r.Policy), Number: uint32(r.Number), Direction: uint32(r.Direction),
		Tier:     uint32(r.Tier),
		Priority: uint32(r.Priority), Action: uint32(r.Action), AnyPeer: r.AnyPeer, Groups: r.Groups,
	}
	for _, b := range r.Blocks {
		m.Blocks = append(m.Blocks, &Block{Address: b.Addr().AsSlice(), Bits: uint32(b.Bits())})
	}
	for _, p := range r.Ports {
		m.Ports = append(m.Ports, &PortRange{
			Protocol: uint32(p.Protocol), First: uint32(p.First), Last: uint32(p.Last), Icmp: p.ICMP,
		})
	}
	return encode(&Item{Kind: &Item_Rule{Rule: m}})
}

// EncodeSubject makes an item of a Subject. Closed may quote anything that users write,
// such as an annotation.
func EncodeSubject(s intent.Subject) []byte {
	return encode(&Item{Kind: &Item_Subject{Subject: &Subject{
		Key: s.Key, Rules: s.Rules, Closed: strings.ToValidUTF8(s.Closed, "\uFFFD"),
		IngressIsolation: refMessages(s.IngressIsolation),
		EgressIsolation:  refMessages(s.EgressIsolation), SecurityGroups: refMessages(s.SecurityGroups),
	}}})
}

// EncodePeer makes an item of a Peer.
func EncodePeer(p intent.Peer) []byte {
	return encode(&Item{Kind: &Item_Peer{Peer: &Peer{Space: p.Space, Address: p.Address.AsSlice(), Groups: p.Groups}}})
}

// AttachmentMessage is an Attachment as it is sent.
func AttachmentMessage(a policy.Attachment) *Attachment {
	m := &Attachment{Namespace: a.Namespace, Name: a.Name, Subject: a.Subject}
	for _, addr := range a.Addresses {
		m.Addresses = append(m.Addresses, addr.AsSlice())
	}
	return m
}

// maxAttached is how many addresses a pod has in the cluster: one of each family.
const maxAttached = 2

// AttachmentOf reads one that was received.
func AttachmentOf(m *Attachment) (policy.Attachment, error) {
	a := policy.Attachment{Namespace: m.GetNamespace(), Name: m.GetName(), Subject: m.GetSubject()}
	if a.Namespace == "" || a.Name == "" || a.Subject == "" {
		return a, errors.New("an attachment does not say of which pod it is")
	}
	if n := len(m.GetAddresses()); n == 0 || n > maxAttached {
		return a, fmt.Errorf("pod %s/%s has %d addresses", a.Namespace, a.Name, n)
	}
	for _, b := range m.GetAddresses() {
		addr, ok := netip.AddrFromSlice(b)
		if !ok || addr.Is4In6() {
			return a, fmt.Errorf("pod %s/%s: %x is no address", a.Namespace, a.Name, b)
		}
		a.Addresses = append(a.Addresses, addr)
	}
	return a, nil
}

// BasisMessage is a Basis as it is sent.
func BasisMessage(b policy.Basis) *Basis {
	m := &Basis{}
	for _, kind := range slices.Sorted(maps.Keys(b)) {
		m.Kinds = append(m.Kinds, &KindVersion{Kind: kind, Changed: b[kind].Changed, Seen: b[kind].Seen})
	}
	return m
}

// maxKinds is more than policies depend on.
const maxKinds = 100

// BasisOf reads one that was received. It is nil if there is none, as from an earlier release.
func BasisOf(m *Basis) (policy.Basis, error) {
	if m == nil {
		return nil, nil
	}
	if n := len(m.GetKinds()); n > maxKinds {
		return nil, fmt.Errorf("the basis has %d kinds", n)
	}
	b := policy.Basis{}
	for _, k := range m.GetKinds() {
		if k.GetKind() == "" {
			return nil, errors.New("the basis has a kind without a name")
		}
		b[k.GetKind()] = policy.Versions{Changed: k.GetChanged(), Seen: k.GetSeen()}
	}
	return b, nil
}

func encode(item *Item) []byte {
	data, err := deterministic.Marshal(item)
	if err != nil {
		// Names in the API are UTF-8, and nothing else of an item can be wrong.
		panic(fmt.Sprintf("policystream: %v", err))
	}
	return data
}

func refMessage(r intent.PolicyRef) *PolicyRef {
	return &PolicyRef{Kind: string(r.Kind), Namespace: r.Namespace, Name: r.Name}
}

func refMessages(list []intent.PolicyRef) []*PolicyRef {
	var messages []*PolicyRef
	for _, r := range list {
		messages = append(messages, refMessage(r))
	}
	return messages
}

// Decoded is what an item says: one of the three.
type Decoded struct {
	ID ID
	// Unknown says what of it this release does not understand, since a newer one wrote it; empty:
	// nothing. Then the rest does not count.
	Unknown string
	Rule    intent.Rule
	Subject intent.Subject
	Peer    intent.Peer
}

// Decode reads an item that was received, and refuses what no controller of any release would send.
func Decode(data []byte) (Decoded, error) {
	item := &Item{}
	if err := proto.Unmarshal(data, item); err != nil {
		return Decoded{}, fmt.Errorf("item: %w", err)
	}
	var d Decoded
	var err error
	switch k := item.GetKind().(type) {
	case *Item_Rule:
		d.Rule, err = rule(k.Rule)
		d.ID = RuleID(d.Rule.ID)
	case *Item_Subject:
		d.Subject, err = subject(k.Subject)
		d.ID = SubjectID(d.Subject.Key)
	case *Item_Peer:
		d.Peer, err = peer(k.Peer)
		d.ID = PeerID(intent.PeerKey(d.Peer.Space, d.Peer.Address))
	default:
		return Decoded{}, errors.New("item: it is of no known kind")
	}
	err = errors.Join(err, unknown(item))
	if IsFromNewerRelease(err) && d.ID.Key != "" {
		return Decoded{ID: d.ID, Unknown: strings.ReplaceAll(err.Error(), "\n", ", ")}, nil
	}
	if err != nil {
		return Decoded{}, fmt.Errorf("%s: %w", d.ID, err)
	}
	return d, nil
}

func rule(m *Rule) (intent.Rule, error) {
	r := intent.Rule{
		ID: m.GetId(), Number: int(m.GetNumber()), Direction: intent.Direction(m.GetDirection()),
		Tier:     intent.Tier(m.GetTier()),
		Priority: uint16(m.GetPriority()), Action: intent.Action(m.GetAction()), AnyPeer: m.GetAnyPeer(),
		Groups: m.GetGroups(),
	}
	var err error
	r.Policy, err = ref(m.GetPolicy())
	err = errors.Join(
		err,
		unknown(m),
		within("number", m.GetNumber(), 1, math.MaxInt32),
		option("direction", m.GetDirection(), uint32(intent.Egress)),
		option("tier", m.GetTier(), uint32(intent.BaselineTier)),
		within("priority", m.GetPriority(), 0, maxPriority),
		option("action", m.GetAction(), uint32(intent.Pass)),
		named("groups", r.Groups),
	)
	if r.ID == "" {
		err = errors.Join(err, errors.New("the id is empty"))
	}
	for _, b := range m.GetBlocks() {
		address, ok := netip.AddrFromSlice(b.GetAddress())
		if !ok || address.Is4In6() || b.GetBits() > uint32(address.BitLen()) {
			return r, fmt.Errorf("block %x/%d is not a prefix", b.GetAddress(), b.GetBits())
		}
		prefix := netip.PrefixFrom(address, int(b.GetBits()))
		if prefix != prefix.Masked() {
			return r, fmt.Errorf("block %s has bits set beyond its length", prefix)
		}
		r.Blocks = append(r.Blocks, prefix)
		err = errors.Join(err, unknown(b))
	}
	for _, p := range m.GetPorts() {
		err = errors.Join(err, unknown(p),
			within("protocol", p.GetProtocol(), 0, math.MaxUint8),
			within("first port", p.GetFirst(), 0, math.MaxUint16), within("last port", p.GetLast(), 0, math.MaxUint16))
		if p.GetFirst() > p.GetLast() && !p.GetIcmp() {
			err = errors.Join(err, fmt.Errorf("ports %d to %d are none", p.GetFirst(), p.GetLast()))
		}
		r.Ports = append(r.Ports, intent.PortRange{
			Protocol: uint8(p.GetProtocol()), First: uint16(p.GetFirst()), Last: uint16(p.GetLast()), ICMP: p.GetIcmp(),
		})
	}
	return r, err
}

// maxPriority is the highest of AdminTier and BaselineTier.
const maxPriority = 1000

func subject(m *Subject) (s intent.Subject, err error) {
	s = intent.Subject{Key: m.GetKey(), Rules: m.GetRules(), Closed: m.GetClosed()}
	var errs [3]error
	s.IngressIsolation, errs[0] = refs(m.GetIngressIsolation())
	s.EgressIsolation, errs[1] = refs(m.GetEgressIsolation())
	s.SecurityGroups, errs[2] = refs(m.GetSecurityGroups())
	err = errors.Join(unknown(m), named("rules", s.Rules), errors.Join(errs[:]...))
	if s.Key == "" {
		err = errors.Join(err, errors.New("the key is empty"))
	}
	return s, err
}

func peer(m *Peer) (intent.Peer, error) {
	p := intent.Peer{Space: m.GetSpace(), Groups: m.GetGroups()}
	address, ok := netip.AddrFromSlice(m.GetAddress())
	if !ok || address.Is4In6() {
		return p, fmt.Errorf("%x is not an address", m.GetAddress())
	}
	p.Address = address
	err := unknown(m)
	if p.Space == "" || len(p.Groups) == 0 && err == nil {
		err = errors.Join(err, errors.New("it has no space or no groups"))
	}
	return p, errors.Join(err, named("groups", p.Groups))
}

// named refuses a name that is empty.
func named(field string, list []string) error {
	for _, name := range list {
		if name == "" {
			return fmt.Errorf("%s: one is empty", field)
		}
	}
	return nil
}

func refs(list []*PolicyRef) (refs []intent.PolicyRef, err error) {
	for _, m := range list {
		r, e := ref(m)
		refs, err = append(refs, r), errors.Join(err, e)
	}
	return refs, err
}

func ref(m *PolicyRef) (intent.PolicyRef, error) {
	r := intent.PolicyRef{Kind: intent.PolicyKind(m.GetKind()), Namespace: m.GetNamespace(), Name: m.GetName()}
	err := unknown(m)
	switch r.Kind {
	case intent.NetworkPolicy, intent.ClusterNetworkPolicy, intent.SecurityGroup:
	case "":
		err = errors.Join(err, errors.New("a policy has no kind"))
	default:
		err = errors.Join(err, newerReleaseError(fmt.Sprintf("there is no kind of policy %q", m.GetKind())))
	}
	if r.Name == "" {
		err = errors.Join(err, errors.New("a policy has no name"))
	}
	return r, err
}

// RefOf reads a PolicyRef that was received.
func RefOf(m *PolicyRef) (intent.PolicyRef, error) { return ref(m) }

// RefMessage is the PolicyRef as it is sent.
func RefMessage(r intent.PolicyRef) *PolicyRef { return refMessage(r) }

func within(field string, v, low, high uint32) error {
	if v < low || v > high {
		return fmt.Errorf("%s %d is not within %d to %d", field, v, low, high)
	}
	return nil
}
