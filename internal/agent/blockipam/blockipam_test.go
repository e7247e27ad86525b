// SPDX-License-Identifier: Apache-2.0

package blockipam

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/apicache/apicachetest"
	"coelan.io/coelan/internal/agent/kube/kubetest"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/ipam"
	"coelan.io/coelan/internal/translate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is the part of an agent that blocks need.
type node struct {
	t     *testing.T
	api   *kubetest.API
	store *attachment.Store
	view  *apicache.View
	*Blocks
}

// newNode makes a node of the cluster that api is of. It shares the API with others.
func newNode(t *testing.T, api *kubetest.API, name string) *node {
	t.Helper()
	store, v := apicachetest.Open(t)
	return &node{t, api, store, v, New(slog.New(slog.DiscardHandler), name, api, v, store)}
}

// see has the view know all that is in the API.
func (n *node) see() { n.api.Show(n.view.Updates(func() {}), nil)() }

// add attaches a pod's interface with an address of the Network's ranges, as the CNI server does.
func (n *node) add(network *v1alpha1.Network, pod string) (attachment.Attachment, error) {
	ctx, done := context.WithCancel(n.t.Context())
	defer done()
	var exhausted []netip.Prefix
	for {
		ranges, err := n.Ranges(ctx, translate.Network(network), exhausted)
		if err != nil {
			return attachment.Attachment{}, err
		}
		at, err := n.store.Allocate(attachment.Plan{
			Spec: attachment.Spec{
				Key: attachment.Key{ContainerID: pod, IfName: "eth0"}, PodNamespace: "shop", PodName: pod,
				NetworkName: network.Name, NetworkID: 2, BlockSpace: true,
			},
			Ranges: ranges,
		})
		var full *ipam.ExhaustedError
		if !errors.As(err, &full) {
			return at, err
		}
		exhausted = full.CIDRs
	}
}

func (n *node) mustAdd(network *v1alpha1.Network, pod string) attachment.Attachment {
	n.t.Helper()
	at, err := n.add(network, pod)
	if err != nil {
		n.t.Fatal(err)
	}
	return at
}

func lan(subnets ...v1alpha1.Subnet) *v1alpha1.Network {
	return &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "lan"}, Spec: v1alpha1.NetworkSpec{Subnets: subnets}}
}

// owners are the nodes of the blocks, by prefix.
func owners(api *kubetest.API) map[string]string {
	m := map[string]string{}
	for _, b := range api.AllBlocks() {
		m[b.Spec.CIDR] = b.Spec.Node
	}
	return m
}

func TestNodesShareASubnet(t *testing.T) {
	api := kubetest.New("")
	network := lan(v1alpha1.Subnet{CIDR: "10.0.0.0/26"}) // four blocks of /30
	nodes := []*node{newNode(t, api, "a"), newNode(t, api, "b"), newNode(t, api, "c")}
	seen := map[netip.Addr]string{}
	var full *ExhaustedError
	for i := 0; len(nodes) > 0; i++ {
		n := nodes[i%len(nodes)]
		at, err := n.add(network, fmt.Sprint("p", i))
		if errors.As(err, &full) {
			nodes = slices.DeleteFunc(nodes, func(o *node) bool { return o == n })
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		a := at.Addresses[0].Addr()
		if seen[a] != "" || at.Addresses[0].Bits() != 26 || at.Gateways[0].String() != "10.0.0.1" {
			t.Fatalf("%s has %s, gateway %s; %s has it too", at.PodRef(), at.Addresses[0], at.Gateways[0], seen[a])
		}
		seen[a] = at.PodRef()
	}
	// All but the network's number, the gateway and the broadcast address.
	if len(seen) != 61 || full.Subnet.String() != "10.0.0.0/26" {
		t.Errorf("%d addresses were handed out before %v", len(seen), full)
	}
}

func TestRangesAndExclusions(t *testing.T) {
	api := kubetest.New("")
	network := lan(v1alpha1.Subnet{
		CIDR: "10.0.0.0/24", Gateway: "10.0.0.20", BlockPrefixLength: 29,
		Ranges: []v1alpha1.AddressRange{{From: "10.0.0.10", To: "10.0.0.24"}}, Exclusions: []string{"10.0.0.11-10.0.0.19"},
	})
	n := newNode(t, api, "a")
	var got []string
	for i := range 10 {
		at, err := n.add(network, fmt.Sprint("p", i))
		if err != nil {
			break
		}
		got = append(got, at.Addresses[0].Addr().String())
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"10.0.0.10", "10.0.0.21", "10.0.0.22", "10.0.0.23", "10.0.0.24"}, got); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

func TestBothFamilies(t *testing.T) {
	api := kubetest.New("")
	n := newNode(t, api, "a")
	at := n.mustAdd(lan(v1alpha1.Subnet{CIDR: "10.0.0.0/16"}, v1alpha1.Subnet{CIDR: "10.1.0.0/16"}, v1alpha1.Subnet{CIDR: "fd00::/64"}), "p")
	if len(at.Addresses) != 2 || !at.Addresses[0].Addr().Is4() || !at.Addresses[1].Addr().Is6() || len(api.AllBlocks()) != 2 {
		t.Errorf("addresses %v of blocks %v", at.Addresses, owners(api))
	}
}

// A block is not claimed twice if its creation was answered too late or if the cache has
// not shown it yet.
func TestClaimAgainFindsTheOwnBlock(t *testing.T) {
	api := kubetest.New("")
	network := lan(v1alpha1.Subnet{CIDR: "10.0.0.0/24"})
	newNode(t, api, "a").mustAdd(network, "p")
	again := newNode(t, api, "a") // the agent has lost its memory
	again.mustAdd(network, "q")
	if len(api.AllBlocks()) != 1 {
		t.Errorf("blocks %v", owners(api))
	}
}

func TestAwayAPI(t *testing.T) {
	api := kubetest.New("")
	network := lan(v1alpha1.Subnet{CIDR: "10.0.0.0/24"})
	n := newNode(t, api, "a")
	api.SetAway(true)
	if _, err := n.add(network, "p"); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("a claim without the API: %v", err)
	}
	api.SetAway(false)
	n.mustAdd(network, "p")
	n.see()
	api.SetAway(true)
	before := len(api.Calls())
	n.mustAdd(network, "q")
	if calls := api.Calls()[before:]; len(calls) > 0 {
		t.Errorf("a pod in a block that is there asked the API: %v", calls)
	}
}

// run lets the node tend its blocks while the view shows what is in the API.
func (n *node) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	hide := n.api.Show(n.view.Updates(func() {}), nil)
	n.t.Cleanup(func() {
		hide()
		cancel()
		if err := <-done; err != nil {
			n.t.Error(err)
		}
	})
}

func TestUnusedBlocksAreGivenBack(t *testing.T) {
	api := kubetest.New("")
	n := newNode(t, api, "a")
	n.run()
	network := lan(v1alpha1.Subnet{CIDR: "10.0.0.0/24"})
	at := n.mustAdd(network, "p")
	kubetest.Eventually(t, "the use of the block is written", func() bool { return api.AllBlocks()[0].Status.Used == 1 })
	if _, err := n.store.Release(at.Key); err != nil {
		t.Fatal(err)
	}
	n.Kick()
	kubetest.Eventually(t, "the block is given back", func() bool { return len(api.AllBlocks()) == 0 })
	n.mustAdd(network, "q")
	if len(api.AllBlocks()) != 1 {
		t.Errorf("blocks %v", owners(api))
	}
}

// With Keep they stay for it, and for the next pod, unless their Network is about to go.
func TestUnusedBlocksAreKept(t *testing.T) {
	api := kubetest.New("")
	network := lan(v1alpha1.Subnet{CIDR: "10.0.0.0/24"})
	api.Add(network)
	n := newNode(t, api, "a")
	n.Keep = time.Hour
	n.run()
	use := func(pod string) {
		t.Helper()
		at := n.mustAdd(network, pod)
		n.Kick()
		kubetest.Eventually(t, "the use is written", func() bool { return api.AllBlocks()[0].Status.Used == 1 })
		if _, err := n.store.Release(at.Key); err != nil {
			t.Fatal(err)
		}
		n.Kick()
		kubetest.Eventually(t, "that it is unused, too", func() bool {
			blocks := api.AllBlocks()
			return len(blocks) == 1 && blocks[0].Status.Used == 0
		})
	}
	use("p")
	block := api.AllBlocks()[0].UID
	use("q")
	if api.AllBlocks()[0].UID != block {
		t.Error("the block is another one")
	}
	leaving := network.DeepCopy()
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	api.Add(leaving)
	kubetest.Eventually(t, "the block is given back", func() bool { return len(api.AllBlocks()) == 0 })
}

// When it is over they are given back, though nothing else happens.
func TestUnusedBlocksAreKeptNoLonger(t *testing.T) {
	api := kubetest.New("")
	network := lan(v1alpha1.Subnet{CIDR: "10.0.0.0/24"})
	api.Add(network)
	n := newNode(t, api, "a")
	n.Keep = 400 * time.Millisecond
	n.run()
	if _, err := n.store.Release(n.mustAdd(network, "p").Key); err != nil {
		t.Fatal(err)
	}
	n.Kick()
	kubetest.Eventually(t, "the block is given back", func() bool { return len(api.AllBlocks()) == 0 })
}

// A block that vanishes under its addresses is claimed again.
func TestVanishedBlockIsClaimedAgain(t *testing.T) {
	api := kubetest.New("")
	network := lan(v1alpha1.Subnet{CIDR: "10.0.0.0/24"})
	api.Add(network)
	n := newNode(t, api, "a")
	n.run()
	n.mustAdd(network, "p")
	name := api.AllBlocks()[0].Name
	kubetest.Eventually(t, "the view shows the block", func() bool { return n.view.State().Blocks.Get(name) != nil })
	api.RemoveBlock(name)
	kubetest.Eventually(t, "the block is back", func() bool { return len(api.AllBlocks()) == 1 && api.AllBlocks()[0].Name == name })
}

// So is a single address that a pod has; that of a user's Port is the controller's.
func TestVanishedSingleIsClaimedAgain(t *testing.T) {
	api := kubetest.New("")
	network := lan(v1alpha1.Subnet{CIDR: "10.0.0.0/24"})
	api.Add(network)
	n := newNode(t, api, "a")
	ofPod := attachment.Plan{
		Spec: attachment.Spec{
			Key: attachment.Key{ContainerID: "p", IfName: "eth0"}, PodNamespace: "shop", PodName: "p", PortName: "p.eth0",
			NetworkName: "lan", NetworkID: 2, BlockSpace: true,
		},
		Requested: attachment.Requested{Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.9")}},
	}
	ofUser := ofPod
	ofUser.Key, ofUser.PodName, ofUser.PortName = attachment.PortKey("shop", "vm"), "vm", "vm"
	ofUser.Addresses = []netip.Addr{netip.MustParseAddr("10.0.0.8")}
	for _, r := range []attachment.Plan{ofUser, ofPod} {
		if _, err := n.store.Allocate(r); err != nil {
			t.Fatal(err)
		}
	}
	n.run()
	kubetest.Eventually(t, "the claim is back", func() bool { return len(api.AllBlocks()) > 0 })
	b := api.AllBlocks()
	if len(b) != 1 || b[0].Spec.CIDR != "10.0.0.9/32" || b[0].Spec.Node != "a" || b[0].Spec.Port != "shop/p.eth0" {
		t.Errorf("claims: %+v", b)
	}
}

func TestSingleAddresses(t *testing.T) {
	api := kubetest.New("")
	network := lan(v1alpha1.Subnet{CIDR: "10.0.0.0/26"})
	api.Add(network)
	owner, other := newNode(t, api, "a"), newNode(t, api, "b")
	taken := owner.mustAdd(network, "p").Addresses[0].Addr()
	block := netip.MustParsePrefix(api.AllBlocks()[0].Spec.CIDR)
	free := block.Addr()
	for a := block.Addr(); block.Contains(a); a = a.Next() {
		if a != taken && a != block.Addr() {
			free = a
		}
	}
	owner.run()
	t.Cleanup(api.Show(other.view.Updates(func() {}), nil))
	ctx := t.Context()
	if err := other.ClaimSingle(ctx, translate.Network(network), free, "shop/q.eth0"); err != nil {
		t.Fatalf("a free address of another node's block: %v", err)
	}
	if err := other.ClaimSingle(ctx, translate.Network(network), free, "shop/q.eth0"); err != nil {
		t.Errorf("claimed again by the same Port: %v", err)
	}
	var refused *TakenError
	if err := other.ClaimSingle(ctx, translate.Network(network), free, "shop/r.eth0"); !errors.As(err, &refused) {
		t.Errorf("claimed by another Port: %v", err)
	}
	gateway := &v1alpha1.AddressBlock{ObjectMeta: metav1.ObjectMeta{Name: "lan-10-0-0-9-32"}}
	gateway.Spec = v1alpha1.AddressBlockSpec{Network: "lan", CIDR: "10.0.0.9/32", Gateway: "red/n1"}
	if _, err := api.CreateBlock(ctx, gateway); err != nil {
		t.Fatal(err)
	}
	ofGateway := other.ClaimSingle(ctx, translate.Network(network), netip.MustParseAddr("10.0.0.9"), "shop/t.eth0")
	if !errors.As(ofGateway, &refused) || !strings.Contains(ofGateway.Error(), "gateway of router red on node n1 has it") {
		t.Errorf("an address that a gateway has: %v", ofGateway)
	}
	if err := other.ClaimSingle(ctx, translate.Network(network), taken, "shop/s.eth0"); !errors.As(err, &refused) || !strings.Contains(err.Error(), "shop/p") {
		t.Errorf("an address that a pod has: %v", err)
	}
	for i := range 3 {
		at, err := owner.add(network, fmt.Sprint("more", i))
		if err == nil && at.Addresses[0].Addr() == free {
			t.Errorf("%s was handed out by its block's node", free)
		}
	}
	if err := other.UnclaimSingle(ctx, "lan", free, "shop/q.eth0"); err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(api.AllBlocks(), func(b *v1alpha1.AddressBlock) bool { return b.Spec.Port == "shop/q.eth0" }) {
		t.Error("the claim is still there")
	}
}

// The answer of a node that does not have the block is not believed, be it a grant or a
// refusal, and neither is a block of another length: the node of the block answers another
// claim, which names it.
func TestAnswerOfAnotherNode(t *testing.T) {
	granted, refused := metav1.ConditionTrue, metav1.ConditionFalse
	for _, tc := range []struct {
		name    string
		status  metav1.ConditionStatus
		message string
		again   bool // the claim is made again
		err     string
	}{
		{name: "granted", status: granted, message: translate.GrantMessage("a")},
		{name: "granted by a thief", status: granted, message: translate.GrantMessage("thief"), again: true},
		{name: "refused", status: refused, message: translate.RefusalMessage("a", "a pod has it"), err: "a pod has it"},
		{name: "refused by an older agent", status: refused, message: "a pod has it", err: "a pod has it"},
		{name: "refused by a thief", status: refused, message: translate.RefusalMessage("thief", "a pod has it"), again: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			api := kubetest.New("")
			network := lan(v1alpha1.Subnet{CIDR: "10.0.0.0/26"}) // blocks of /30
			api.Add(network)
			claimer, thiefs, owner := newNode(t, api, "b"), newNode(t, api, "thief").Blocks, newNode(t, api, "a")
			t.Cleanup(api.Show(claimer.view.Updates(func() {}), nil))
			taken := owner.mustAdd(network, "p").Addresses[0].Addr()
			block := netip.MustParsePrefix(api.AllBlocks()[0].Spec.CIDR)
			free := block.Addr().Next()
			if free == taken {
				free = free.Next()
			}
			single := claimer.object(translate.Network(network), netip.PrefixFrom(free, 32), "shop/q.eth0")
			single.Status.Conditions = []metav1.Condition{{
				Type: v1alpha1.ConditionGranted, Status: tc.status, Message: tc.message,
			}}
			api.Add(single, thiefs.object(translate.Network(network), netip.PrefixFrom(free, 29).Masked(), ""))
			owner.run()
			err := claimer.ClaimSingle(t.Context(), translate.Network(network), free, "shop/q.eth0")
			if (tc.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
			var grantor string
			for _, o := range api.AllBlocks() {
				if o.Name == single.Name {
					grantor = o.Spec.Grantor
				}
			}
			if again := grantor == "a"; again != tc.again {
				t.Errorf("the claim names grantor %q, want another claim: %v", grantor, tc.again)
			}
		})
	}
}

// A single address that was there before the block is honored by its claimer, also if the view
// does not show it.
func TestBlockAroundASingleAddress(t *testing.T) {
	api := kubetest.New("")
	network := lan(v1alpha1.Subnet{CIDR: "10.0.0.0/28"})
	other := newNode(t, api, "b")
	single := netip.MustParseAddr("10.0.0.9")
	if err := other.ClaimSingle(t.Context(), translate.Network(network), single, "shop/q.eth0"); err != nil {
		t.Fatal(err)
	}
	n := newNode(t, api, "a")
	for i := range 20 {
		at, err := n.add(network, fmt.Sprint("p", i))
		if err != nil {
			break
		}
		if at.Addresses[0].Addr() == single {
			t.Fatalf("%s was handed out", single)
		}
	}
	for _, b := range api.AllBlocks() {
		if b.Spec.Port != "" && meta.IsStatusConditionFalse(b.Status.Conditions, v1alpha1.ConditionGranted) {
			t.Error("the older claim was refused")
		}
	}
}

// A node takes blocks from its parts of a Network, keeps those that it has elsewhere, and says when
// there is none left.
func TestPartsOfANetwork(t *testing.T) {
	api := kubetest.New("")
	network := lan(v1alpha1.Subnet{CIDR: "10.3.0.0/24", BlockPrefixLength: 28})
	n := newNode(t, api, "a")
	n.Subnets = map[string][]netip.Prefix{network.Name: {netip.MustParsePrefix("10.3.0.32/28")}, "other": {netip.MustParsePrefix("10.9.0.0/24")}}
	part := netip.MustParsePrefix("10.3.0.32/28")
	for i := range 17 {
		at, err := n.add(network, fmt.Sprint("pod", i))
		if err != nil {
			var exhausted *ExhaustedError
			if !errors.As(err, &exhausted) || !strings.Contains(err.Error(), "left in [10.3.0.32/28], from which this node takes its blocks") {
				t.Fatal(err)
			}
			if i != 16 {
				t.Fatalf("%d pods: %v", i, err)
			}
			n.Subnets = nil
			if elsewhere := n.mustAdd(network, "elsewhere"); part.Contains(elsewhere.Addresses[0].Addr()) {
				t.Errorf("%v is in the part that is full", elsewhere.Addresses)
			}
			n.Subnets = map[string][]netip.Prefix{network.Name: {part}}
			if next := n.mustAdd(network, "next"); part.Contains(next.Addresses[0].Addr()) {
				t.Errorf("%v: a block that the node has elsewhere is not used", next.Addresses)
			}
			return
		}
		if a := at.Addresses[0].Addr(); !part.Contains(a) {
			t.Errorf("%s is not in the node's part", a)
		}
	}
	t.Error("the part has no end")
}
