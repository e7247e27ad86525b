// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/kube/kubetest"
	"coelan.io/coelan/internal/agent/view"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/ipam"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is the part of an agent that blocks need.
type node struct {
	t     *testing.T
	api   *kubetest.API
	store *attachment.Store
	view  *view.View
	*Blocks
}

// newNode makes a node of the cluster that api is of. It shares the API with others.
func newNode(t *testing.T, api *kubetest.API, name string) *node {
	t.Helper()
	store, err := attachment.Open(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	v, err := view.New(slog.New(slog.DiscardHandler), store)
	if err != nil {
		t.Fatal(err)
	}
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
		ranges, err := n.Ranges(ctx, network, exhausted)
		if err != nil {
			return attachment.Attachment{}, err
		}
		at, err := n.store.Allocate(attachment.Request{
			Key: attachment.Key{ContainerID: pod, IfName: "eth0"}, PodNamespace: "shop", PodName: pod,
			NetworkName: network.Name, NetworkID: 2, BlockSpace: true, Ranges: ranges,
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

// A block whose creation was answered too late, or that the view has not shown, is not claimed twice.
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

const patience = 10 * time.Second

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so: %s", what)
		}
	}
}

func TestUnusedBlocksAreGivenBack(t *testing.T) {
	api := kubetest.New("")
	n := newNode(t, api, "a")
	n.run()
	network := lan(v1alpha1.Subnet{CIDR: "10.0.0.0/24"})
	at := n.mustAdd(network, "p")
	eventually(t, "the use of the block is written", func() bool { return api.AllBlocks()[0].Status.Used == 1 })
	if _, err := n.store.Release(at.Key); err != nil {
		t.Fatal(err)
	}
	n.Kick()
	eventually(t, "the block is given back", func() bool { return len(api.AllBlocks()) == 0 })
	n.mustAdd(network, "q")
	if len(api.AllBlocks()) != 1 {
		t.Errorf("blocks %v", owners(api))
	}
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
	eventually(t, "the view shows the block", func() bool { return n.view.State().Blocks[name] != nil })
	api.RemoveBlock(name)
	eventually(t, "the block is back", func() bool { return len(api.AllBlocks()) == 1 && api.AllBlocks()[0].Name == name })
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
	if err := other.ClaimSingle(ctx, network, free, "shop/q.eth0"); err != nil {
		t.Fatalf("a free address of another node's block: %v", err)
	}
	if err := other.ClaimSingle(ctx, network, free, "shop/q.eth0"); err != nil {
		t.Errorf("claimed again by the same Port: %v", err)
	}
	var refused *TakenError
	if err := other.ClaimSingle(ctx, network, free, "shop/r.eth0"); !errors.As(err, &refused) {
		t.Errorf("claimed by another Port: %v", err)
	}
	if err := other.ClaimSingle(ctx, network, taken, "shop/s.eth0"); !errors.As(err, &refused) || !strings.Contains(err.Error(), "shop/p") {
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

// A single address that was there before the block is honoured by its claimer, also if the view does not show it.
func TestBlockAroundASingleAddress(t *testing.T) {
	api := kubetest.New("")
	network := lan(v1alpha1.Subnet{CIDR: "10.0.0.0/28"})
	other := newNode(t, api, "b")
	single := netip.MustParseAddr("10.0.0.9")
	if err := other.ClaimSingle(t.Context(), network, single, "shop/q.eth0"); err != nil {
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
