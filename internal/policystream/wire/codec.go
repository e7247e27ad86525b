// SPDX-License-Identifier: Apache-2.0

// Package wire is the protocol between agents and controllers about policies: its messages, and how intent becomes items
// of it. An item is known by the digest of its encoded bytes, so that an agent that comes back is sent what it lacks and
// nothing else.
package wire

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"

	"google.golang.org/protobuf/proto"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
)

// DigestSize is the length of a Digest in bytes. Whoever writes policies may choose what is in an item, and has to try 2⁶⁴ of
// them before two are taken for the same.
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

// deterministic gives what is equal equal bytes, of one release at least. Two replicas of different ones may differ, which
// costs an agent that moves from one to the other that everything is sent.
var deterministic = proto.MarshalOptions{Deterministic: true}

// EncodeRule makes an item of a Rule.
func EncodeRule(r intent.Rule) []byte {
	m := &Rule{
		Id: r.ID, Policy: refMessage(r.Policy), Number: uint32(r.Number), Direction: uint32(r.Direction), Tier: uint32(r.Tier),
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

// EncodeSubject makes an item of a Subject. Closed may quote anything that users write, such as an annotation.
func EncodeSubject(s intent.Subject) []byte {
	return encode(&Item{Kind: &Item_Subject{Subject: &Subject{
		Key: s.Key, Rules: s.Rules, Closed: strings.ToValidUTF8(s.Closed, "\uFFFD"), IngressIsolation: refMessages(s.IngressIsolation),
		EgressIsolation: refMessages(s.EgressIsolation), SecurityGroups: refMessages(s.SecurityGroups),
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
	ID      ID
	Rule    intent.Rule
	Subject intent.Subject
	Peer    intent.Peer
}

// Decode reads an item that was received, and refuses what no controller of this release would send.
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
	if err == nil && len(item.ProtoReflect().GetUnknown()) > 0 {
		err = errors.New("it has a field that is not known")
	}
	if err != nil {
		return Decoded{}, fmt.Errorf("%s: %w", d.ID, err)
	}
	return d, nil
}

func rule(m *Rule) (intent.Rule, error) {
	r := intent.Rule{
		ID: m.GetId(), Number: int(m.GetNumber()), Direction: intent.Direction(m.GetDirection()), Tier: intent.Tier(m.GetTier()),
		Priority: uint16(m.GetPriority()), Action: intent.Action(m.GetAction()), AnyPeer: m.GetAnyPeer(), Groups: m.GetGroups(),
	}
	var err error
	if r.Policy, err = ref(m.GetPolicy()); err != nil {
		return r, err
	}
	err = errors.Join(
		unknown(m),
		within("number", m.GetNumber(), 1, math.MaxInt32),
		within("direction", m.GetDirection(), uint32(intent.Ingress), uint32(intent.Egress)),
		within("tier", m.GetTier(), uint32(intent.SecurityGroupTier), uint32(intent.BaselineTier)),
		within("priority", m.GetPriority(), 0, maxPriority),
		within("action", m.GetAction(), uint32(intent.Allow), uint32(intent.Pass)),
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
	err := errors.Join(unknown(m), named("groups", p.Groups))
	if p.Space == "" || len(p.Groups) == 0 {
		err = errors.Join(err, errors.New("it has no space or no groups"))
	}
	return p, err
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
		r, err := ref(m)
		if err != nil {
			return nil, err
		}
		refs = append(refs, r)
	}
	return refs, nil
}

func ref(m *PolicyRef) (intent.PolicyRef, error) {
	r := intent.PolicyRef{Kind: intent.PolicyKind(m.GetKind()), Namespace: m.GetNamespace(), Name: m.GetName()}
	switch r.Kind {
	case intent.NetworkPolicy, intent.ClusterNetworkPolicy, intent.SecurityGroup:
	default:
		return r, fmt.Errorf("there is no kind of policy %q", m.GetKind())
	}
	if r.Name == "" {
		return r, errors.New("a policy has no name")
	}
	return r, unknown(m)
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

// unknown refuses fields of a later release: what they would have restricted is not known.
func unknown(m proto.Message) error {
	if len(m.ProtoReflect().GetUnknown()) > 0 {
		return errors.New("it has a field that is not known")
	}
	return nil
}
