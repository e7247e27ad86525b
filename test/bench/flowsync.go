// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"coelan.io/coelan/internal/backend/ovs/bridge"
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/openflow"
	"coelan.io/coelan/test/lab"
)

// Rounds of the synchronization, and how many flows each brings.
const (
	syncRounds = 7
	syncFlows  = 20_000
)

// measureFlowSync brings the flows of very many pods to an empty bridge in one
// bundle, and the same flows with ovs-ofctl, by turns.
func measureFlowSync(ctx context.Context) ([]Result, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: 1, NoAgents: true})
	defer l.Close()
	if err != nil {
		return nil, err
	}
	s := &syncer{node: l.Nodes[0], file: filepath.Join(l.Nodes[0].Dir(), "flows.txt")}
	if s.desired, err = manyFlows(); err != nil {
		return nil, err
	}
	if err := s.node.OVS.AddBridge(ctx, syncBridge); err != nil {
		return nil, err
	}
	var ours, reference []float64
	for range syncRounds {
		a, err := s.ours(ctx)
		if err != nil {
			return nil, err
		}
		b, err := s.reference(ctx)
		if err != nil {
			return nil, err
		}
		ours, reference = append(ours, a), append(reference, b)
	}
	return []Result{compared("flow-sync-20k", "ms", percentile(ours, 0.5), percentile(reference, 0.5), 1.5, 1, lower)},
		nil
}

const syncBridge = "br-sync"

type syncer struct {
	node    *lab.Node
	desired *bridge.Desired
	file    string // the same flows as text
}

// ours is the time of one Sync of all flows over a connection that is there.
func (s *syncer) ours(ctx context.Context) (float64, error) {
	conn, err := openflow.Dial(ctx, "unix:"+s.node.OVS.MgmtSocket(syncBridge), openflow.ConnOptions{})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	b := bridge.New(bridge.Options{Connect: func(context.Context) (bridge.Switch, error) { return conn, nil }})
	start := time.Now()
	res, err := b.Sync(ctx, s.desired)
	took := milliseconds(time.Since(start))
	if err != nil {
		return 0, err
	}
	if res.Added != syncFlows {
		return 0, fmt.Errorf("synchronized %d flows, want %d", res.Added, syncFlows)
	}
	text, err := s.node.OVS.Ofctl(ctx, "--no-stats", "dump-flows", syncBridge)
	if err != nil {
		return 0, err
	}
	text = strings.TrimPrefix(text, strings.SplitAfterN(text, "\n", 2)[0]) // the reply's own header
	if err := os.WriteFile(s.file, []byte(text), 0o644); err != nil {
		return 0, err
	}
	return took, s.clear(ctx)
}

// reference is the time that ovs-ofctl takes for them.
func (s *syncer) reference(ctx context.Context) (float64, error) {
	start := time.Now()
	if _, err := s.node.OVS.Ofctl(ctx, "--bundle", "add-flows", syncBridge, s.file); err != nil {
		return 0, err
	}
	return milliseconds(time.Since(start)), s.clear(ctx)
}

func (s *syncer) clear(ctx context.Context) error {
	_, err := s.node.OVS.Ofctl(ctx, "del-flows", syncBridge)
	return err
}

// manyFlows are the flows of as many pods as make syncFlows of them.
func manyFlows() (*bridge.Desired, error) {
	store := intent.NewStore()
	address := netip.MustParseAddr("10.100.0.1")
	objects := intent.Objects{
		Local: intent.Local{Node: "n1", Datapath: intent.DatapathNetdev, Encapsulation: intent.VXLAN,
			TunnelIP: netip.MustParseAddr("192.168.33.11"), MTU: 1450},
		Routers: []intent.Router{{Name: intent.DefaultRouterName, ID: intent.DefaultRouter}},
		Networks: []intent.Network{{Name: intent.DefaultNetworkName, ID: intent.DefaultNetwork,
			VNI: uint32(intent.DefaultNetwork), Router: intent.DefaultRouterName}},
		Nodes: []intent.Node{{Name: "n1", Addresses: []netip.Addr{netip.MustParseAddr("192.168.33.11")},
			Subnets: []intent.Subnet{{Network: intent.DefaultNetworkName,
				Prefix: netip.MustParsePrefix("10.100.0.0/16"), Gateway: address}}}},
	}
	numbers := map[string]uint32{}
	for i := range syncFlows / 5 {
		address = address.Next()
		v6 := netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(i >> 8), 15: byte(i)})
		objects.Ports = append(objects.Ports, intent.Port{
			ID: fmt.Sprintf("container-%d/eth0", i), Namespace: "bench", Pod: fmt.Sprintf("pod-%d", i),
			Interface: "eth0",
			Network:   intent.DefaultNetworkName, Node: "n1", MAC: reserved.PodMAC(address),
			Addresses: []netip.Addr{address, v6},
		})
		numbers["container-"+strconv.Itoa(i)+"/eth0"] = datapath.FirstPodPort + uint32(i)
	}
	state, err := store.Update(func(tx *intent.Tx) error { tx.Replace(objects); return nil })
	if err != nil {
		return nil, err
	}
	all, cut, left := pipeline.Desired(pipeline.Input{State: state, Numbers: pipeline.NewNumbers(numbers, nil)}),
		bridge.NewDesired(), syncFlows
	for _, p := range objects.Ports {
		rules := all.Get("port/" + p.Name() + "#" + p.ID)
		if rules == nil {
			return nil, fmt.Errorf("port %s has no flows", p.ID)
		}
		n := min(left, len(rules.Flows))
		cut.Set(p.ID, &bridge.Rules{Flows: rules.Flows[:n]})
		if left -= n; left == 0 {
			return cut, nil
		}
	}
	return nil, fmt.Errorf("%d ports have %d flows too few", len(objects.Ports), left)
}
