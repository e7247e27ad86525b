// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
)

var (
	web    = intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "default", Name: "web"}
	sample = intent.Rule{
		ID: "NetworkPolicy/default/web/ingress/1", Policy: web, Number: 1, Direction: intent.Ingress, Tier: intent.NetworkPolicyTier,
		Action: intent.Allow, Groups: []string{"a", "b"},
		Blocks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("::/0")},
		Ports: []intent.PortRange{
			{Protocol: 6, First: 80, Last: 90}, {Protocol: 1, First: 8, Last: intent.AnyICMPCode, ICMP: true},
			{Protocol: 1, First: 8, ICMP: true}, {Protocol: 47, Last: 65535},
		},
	}
	closedSubject = intent.Subject{
		Key: "pod/1", Rules: []string{sample.ID}, IngressIsolation: []intent.PolicyRef{web},
		EgressIsolation: []intent.PolicyRef{{Kind: intent.NetworkPolicy, Namespace: "default", Name: "other"}},
		SecurityGroups:  []intent.PolicyRef{{Kind: intent.SecurityGroup, Namespace: "default", Name: "g"}}, Closed: "because",
	}
	samplePeer = intent.Peer{Space: "default", Address: netip.MustParseAddr("10.1.2.3"), Groups: []string{"a"}}
)

func TestItemsComeBack(t *testing.T) {
	admin := intent.Rule{
		ID: "ClusterNetworkPolicy//x/egress/2", Policy: intent.PolicyRef{Kind: intent.ClusterNetworkPolicy, Name: "x"}, Number: 2,
		Direction: intent.Egress, Tier: intent.AdminTier, Priority: 1000, Action: intent.Pass, AnyPeer: true,
	}
	// The API server keeps annotations as they come, and a message of an agent takes UTF-8 only.
	quoted, replaced := intent.Subject{Key: "pod/3", Closed: "SecurityGroup a/\xff\xfe does not exist"}, intent.Subject{}
	replaced.Key, replaced.Closed = quoted.Key, "SecurityGroup a/\uFFFD does not exist"
	six := intent.Peer{Space: "tenant", Address: netip.MustParseAddr("fd00::1"), Groups: []string{"a", "b"}}
	for name, tc := range map[string]struct {
		data []byte
		want Decoded
	}{
		"rule":          {EncodeRule(sample), Decoded{ID: RuleID(sample.ID), Rule: sample}},
		"rule of tier":  {EncodeRule(admin), Decoded{ID: RuleID(admin.ID), Rule: admin}},
		"subject":       {EncodeSubject(closedSubject), Decoded{ID: SubjectID("pod/1"), Subject: closedSubject}},
		"empty subject": {EncodeSubject(intent.Subject{Key: "pod/2"}), Decoded{ID: SubjectID("pod/2"), Subject: intent.Subject{Key: "pod/2"}}},
		"not UTF-8":     {EncodeSubject(quoted), Decoded{ID: SubjectID("pod/3"), Subject: replaced}},
		"peer":          {EncodePeer(samplePeer), Decoded{ID: PeerID("default 10.1.2.3"), Peer: samplePeer}},
		"peer of IPv6":  {EncodePeer(six), Decoded{ID: PeerID("tenant fd00::1"), Peer: six}},
	} {
		got, err := Decode(tc.data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tc.want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
			cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestGarbageIsRefused(t *testing.T) {
	changed := func(change func(*intent.Rule)) []byte {
		r := sample
		change(&r)
		return EncodeRule(r)
	}
	for name, tc := range map[string]struct {
		data []byte
		want string
	}{
		"bytes":           {[]byte("garbage"), "item: "},
		"nothing":         {nil, "no known kind"},
		"half":            {EncodeRule(sample)[:40], "item: "},
		"no id":           {changed(func(r *intent.Rule) { r.ID = "" }), "id is empty"},
		"no direction":    {changed(func(r *intent.Rule) { r.Direction = 0 }), "direction 0"},
		"no tier":         {changed(func(r *intent.Rule) { r.Tier = 0 }), "tier 0"},
		"no action":       {changed(func(r *intent.Rule) { r.Action = 0 }), "action 0"},
		"no number":       {changed(func(r *intent.Rule) { r.Number = 0 }), "number 0"},
		"priority":        {changed(func(r *intent.Rule) { r.Priority = 1001 }), "priority 1001"},
		"no kind":         {changed(func(r *intent.Rule) { r.Policy.Kind = "" }), "no kind"},
		"nameless policy": {changed(func(r *intent.Rule) { r.Policy.Name = "" }), "no name"},
		"empty group":     {changed(func(r *intent.Rule) { r.Groups = []string{""} }), "groups: one is empty"},
		"ports from behind": {
			changed(func(r *intent.Rule) { r.Ports = []intent.PortRange{{Protocol: 6, First: 2, Last: 1}} }), "ports 2 to 1",
		},
		"unmasked block": {
			changed(func(r *intent.Rule) { r.Blocks = []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8")} }), "bits set beyond",
		},
		"no address":        {EncodePeer(intent.Peer{Space: "default", Groups: []string{"a"}}), "is not an address"},
		"mapped address":    {EncodePeer(intent.Peer{Space: "default", Groups: []string{"a"}, Address: netip.MustParseAddr("::ffff:1.2.3.4")}), "is not an address"},
		"peer of no groups": {EncodePeer(intent.Peer{Space: "default", Address: samplePeer.Address}), "no groups"},
		"no key":            {EncodeSubject(intent.Subject{}), "key is empty"},
		"later, and garbage": {
			protowire.AppendVarint(protowire.AppendTag(changed(func(r *intent.Rule) { r.ID = "" }), 99, protowire.VarintType), 1), "id is empty",
		},
		"too long a block": {encode(&Item{Kind: &Item_Rule{Rule: &Rule{
			Id: "x", Policy: refMessage(web), Number: 1, Direction: 1, Tier: 3, Action: 1, Blocks: []*Block{{Address: []byte{1, 2, 3, 4}, Bits: 33}},
		}}}), "is not a prefix"},
	} {
		if _, err := Decode(tc.data); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, tc.want)
		}
	}
}

// extended adds a field of a newer release to an item, or to a message in it.
func extended(t *testing.T, item []byte, number protowire.Number, to func(*Item) proto.Message) []byte {
	t.Helper()
	m := &Item{}
	if err := proto.Unmarshal(item, m); err != nil {
		t.Fatal(err)
	}
	to(m).ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), 1))
	return encode(m)
}

// What a newer release says is known to be that, and of which item; the numbers of fields tell what
// may be skipped.
func TestItemsOfANewerRelease(t *testing.T) {
	rule, subject, peer := EncodeRule(sample), EncodeSubject(closedSubject), EncodePeer(samplePeer)
	for name, tc := range map[string]struct {
		item []byte
		to   func(*Item) proto.Message
		of   ID
	}{
		"rule":                {rule, func(i *Item) proto.Message { return i.GetRule() }, RuleID(sample.ID)},
		"item of a rule":      {rule, func(i *Item) proto.Message { return i }, RuleID(sample.ID)},
		"policy of a rule":    {rule, func(i *Item) proto.Message { return i.GetRule().GetPolicy() }, RuleID(sample.ID)},
		"block of a rule":     {rule, func(i *Item) proto.Message { return i.GetRule().GetBlocks()[1] }, RuleID(sample.ID)},
		"ports of a rule":     {rule, func(i *Item) proto.Message { return i.GetRule().GetPorts()[0] }, RuleID(sample.ID)},
		"subject":             {subject, func(i *Item) proto.Message { return i.GetSubject() }, SubjectID("pod/1")},
		"policy of a subject": {subject, func(i *Item) proto.Message { return i.GetSubject().GetEgressIsolation()[0] }, SubjectID("pod/1")},
		"peer":                {peer, func(i *Item) proto.Message { return i.GetPeer() }, PeerID("default 10.1.2.3")},
	} {
		same, err := Decode(tc.item)
		if err != nil {
			t.Fatal(err)
		}
		skipped, err := Decode(extended(t, tc.item, FirstSkippable, tc.to))
		if diff := cmp.Diff(same, skipped, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
			cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || err != nil {
			t.Errorf("%s: a field that may be skipped: error %v, (-without +with):\n%s", name, err, diff)
		}
		d, err := Decode(extended(t, tc.item, FirstSkippable-1, tc.to))
		if err != nil || d.ID != tc.of || d.Unknown != "field 999 is not known" {
			t.Errorf("%s: %s, %q, error %v, want that field 999 is not known of %s", name, d.ID, d.Unknown, err, tc.of)
		}
	}
	for want, change := range map[string]func(*intent.Rule){
		"tier 5":              func(r *intent.Rule) { r.Tier = 5 },
		"action 4":            func(r *intent.Rule) { r.Action = 4 },
		"direction 3":         func(r *intent.Rule) { r.Direction = 3 },
		`no kind of policy "`: func(r *intent.Rule) { r.Policy.Kind = "Policy" },
	} {
		r := sample
		change(&r)
		if d, err := Decode(EncodeRule(r)); err != nil || d.ID != RuleID(sample.ID) || !strings.Contains(d.Unknown, want) {
			t.Errorf("%s: %s, %q, error %v", want, d.ID, d.Unknown, err)
		}
	}
	grouped := extended(t, EncodePeer(intent.Peer{Space: "default", Address: samplePeer.Address}), 4,
		func(i *Item) proto.Message { return i.GetPeer() })
	if d, err := Decode(grouped); err != nil || d.Unknown == "" {
		t.Errorf("a peer whose groups may be in a new field: %q, error %v", d.Unknown, err)
	}
}

// A controller may be anything that has the certificate.
func FuzzDecode(f *testing.F) {
	f.Add(EncodeRule(sample))
	f.Add(EncodeSubject(closedSubject))
	f.Add(EncodePeer(samplePeer))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Decode(data)
		if err != nil || d.Unknown != "" {
			return
		}
		var again []byte
		switch d.ID.Kind {
		case Key_RULE:
			again = EncodeRule(d.Rule)
		case Key_SUBJECT:
			again = EncodeSubject(d.Subject)
		case Key_PEER:
			again = EncodePeer(d.Peer)
		default:
			t.Fatalf("%v has no kind", d.ID)
		}
		second, err := Decode(again)
		if err != nil {
			t.Fatalf("%v is refused when it is encoded again: %v", d.ID, err)
		}
		if second.ID != d.ID {
			t.Errorf("%v became %v", d.ID, second.ID)
		}
	})
}

func TestAttachments(t *testing.T) {
	a := policy.Attachment{
		Namespace: "shop", Name: "web", Subject: intent.PodSubject("1"), Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")},
	}
	if got, err := AttachmentOf(AttachmentMessage(a)); err != nil || !reflect.DeepEqual(got, a) {
		t.Errorf("%+v became %+v, %v", a, got, err)
	}
	for want, change := range map[string]func(*Attachment){
		"of which pod":      func(m *Attachment) { m.Name = "" },
		"has 0 addresses":   func(m *Attachment) { m.Addresses = nil },
		"has 3 addresses":   func(m *Attachment) { m.Addresses = append(m.Addresses, m.Addresses[0]) },
		"0102 is no":        func(m *Attachment) { m.Addresses[0] = []byte{1, 2} },
		"01020304 is no ad": func(m *Attachment) { m.Addresses[1] = netip.MustParseAddr("::ffff:1.2.3.4").AsSlice() },
	} {
		m := AttachmentMessage(a)
		change(m)
		if _, err := AttachmentOf(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if _, err := AttachmentOf(nil); err == nil {
		t.Error("nothing is an attachment")
	}
}

func TestDigests(t *testing.T) {
	a, b := DigestOf([]byte("a")), DigestOf([]byte("b"))
	got, err := Digests(bytes.Join([][]byte{a[:], b[:]}, nil))
	if err != nil || len(got) != 2 || got[0] != a || got[1] != b {
		t.Errorf("%x, %v", got, err)
	}
	if _, err := Digests(a[1:]); err == nil {
		t.Error("half a digest is taken for one")
	}
}

func TestIDOf(t *testing.T) {
	if id, err := IDOf(PeerID("default 10.0.0.1").Message()); err != nil || id != PeerID("default 10.0.0.1") {
		t.Error(id, err)
	}
	for _, k := range []*Key{nil, {}, {Key: "x"}, {Kind: 4, Key: "x"}, {Kind: Key_RULE}} {
		if _, err := IDOf(k); err == nil {
			t.Errorf("%v is taken for a key", k)
		}
	}
}
