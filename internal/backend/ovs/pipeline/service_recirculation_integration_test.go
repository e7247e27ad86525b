// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovstest"
)

// datapathFlow is a flow of the datapath, as dpctl/dump-flows prints it.
type datapathFlow struct {
	match string
	drops bool
	from  string // recirc_id that it matches; 0: none
	to    string // that of its last action; empty: it recirculates no more
}

var (
	recircMatch  = regexp.MustCompile(`recirc_id\(((?:0x)?[0-9a-f]+)\)`)
	recircAction = regexp.MustCompile(`,recirc\((0x[0-9a-f]+)\)`)
	notTCP       = regexp.MustCompile(`proto=(17|58|1),`)
)

// datapathFlows reads those that packets of TCP may match.
func datapathFlows(text string) (flows []datapathFlow) {
	for line := range strings.Lines(text) {
		match, actions, ok := strings.Cut(line, "actions:")
		from := recircMatch.FindStringSubmatch(match)
		ip := strings.Contains(match, "eth_type(0x0800)") || strings.Contains(match, "eth_type(0x86dd)")
		if !ok || from == nil || !ip || notTCP.MatchString(match) {
			continue
		}
		f := datapathFlow{match: match, drops: strings.HasPrefix(actions, "drop"), from: from[1]}
		if to := recircAction.FindStringSubmatch("," + actions); to != nil {
			f.to = to[1]
		}
		flows = append(flows, f)
	}
	return flows
}

// kinds of packets of a connection.
const (
	newPacket   = "new"
	replyPacket = "reply"
	laterPacket = "established"
)

// recirculations counts, from the flows of the datapath, how often packets of each kind were looked
// up again until they left. That the userspace datapath looks packets of tunnels up without their
// outer header is not counted.
func recirculations(flows []datapathFlow) map[string]int {
	byID := map[string][]datapathFlow{}
	for _, f := range flows {
		byID[f.from] = append(byID[f.from], f)
	}
	most := map[string]int{}
	var follow func(f datapathFlow, kind string, depth int)
	follow = func(f datapathFlow, kind string, depth int) {
		toClient := strings.Contains(f.match, "dst="+datapath.ServiceSourceIPv4.String()) || strings.Contains(f.match, "dst="+datapath.ServiceSourceIPv6.String())
		switch {
		case f.drops, kind == replyPacket && strings.Contains(f.match, "-rpl"):
			return // no packet has been both
		case toClient || strings.Contains(f.match, "+rpl"):
			kind = replyPacket
		case strings.Contains(f.match, "+new"):
			kind = newPacket
		}
		if f.to == "" {
			most[kind] = max(most[kind], depth)
			return
		}
		for _, next := range byID[f.to] {
			follow(next, kind, depth+1)
		}
	}
	for _, f := range byID["0"] {
		follow(f, laterPacket, 0)
	}
	return most
}

// A packet to a Service is looked up again no more than is written: twice if it is the first and a
// group has to choose, once if not, once on the way back.
func TestServiceRecirculations(t *testing.T) {
	b := newBalanced(t, intent.VXLAN)
	n1, n2 := b.nodes[0], b.nodes[1]
	pod := n1.pods[0]
	near := &liveService{name: "near", number: 1, endpoints: b.endpoints(n1.pods[1]), outside: true}
	far := &liveService{name: "far", number: 2, endpoints: b.endpoints(n2.pods[0])}
	self := &liveService{name: "self", number: 3, endpoints: b.endpoints(pod)}
	kept := &liveService{name: "kept", number: 4, endpoints: b.endpoints(n1.pods[1]), affinity: 60}
	red := &liveService{name: "red", number: 5, router: "red", endpoints: b.endpoints(b.red[1])}
	some := &liveService{name: "some", number: 6, endpoints: b.endpoints(n1.pods[1], n2.pods[0]), outside: true}
	redSome := &liveService{name: "red-some", number: 7, router: "red", endpoints: b.endpoints(b.red[1:]...)}
	b.set(near, far, self, kept, red, some, redSome)
	whole, alone := map[string]int{newPacket: 2, laterPacket: 1, replyPacket: 1}, map[string]int{newPacket: 1, laterPacket: 1, replyPacket: 1}
	for _, tc := range []struct {
		name string
		from *ovstest.Namespace
		to   func(v6 bool) netip.AddrPort
		want map[string]int
	}{
		{"one of two", pod.Namespace, some.clusterIP, whole},
		{"one of two, from the node", n1.Namespace, some.clusterIP, whole},
		{"one of two, node port from outside", b.outside, func(v6 bool) netip.AddrPort { return some.at(n1, v6) }, whole},
		{"one of two, tenant to its own", b.red[0].Namespace, redSome.clusterIP, whole},
		{"one of two, tenant to the default network's", b.red[0].Namespace, some.clusterIP, whole},
		{"same node", pod.Namespace, near.clusterIP, alone},
		{"other node", pod.Namespace, far.clusterIP, alone},
		{"from the node", n1.Namespace, near.clusterIP, alone},
		{"node port from outside", b.outside, func(v6 bool) netip.AddrPort { return near.at(n1, v6) }, alone},
		{"tenant to its own", b.red[0].Namespace, red.clusterIP, alone},
		{"tenant to the default network's", b.red[0].Namespace, near.clusterIP, alone},
		{"client IP affinity", pod.Namespace, kept.clusterIP, alone},
		{"to itself", pod.Namespace, self.clusterIP, map[string]int{newPacket: 1, laterPacket: 2, replyPacket: 2}},
	} {
		for _, v6 := range []bool{false, true} {
			t.Run(tc.name+"/"+familyName(v6), func(t *testing.T) {
				if got, text := b.recirculationsOf(t, tc.from, tc.to(v6)); fmt.Sprint(got) != fmt.Sprint(tc.want) {
					t.Errorf("%v, want %v:\n%s", got, tc.want, text)
				}
			})
		}
	}
}

// recirculationsOf counts them on the first node, for a connection of TCP to a server that answers.
func (b *balanced) recirculationsOf(t *testing.T, from *ovstest.Namespace, to netip.AddrPort) (count map[string]int, flows string) {
	t.Helper()
	if _, _, err := b.ask(from, "tcp", to, talkTime); err != nil { // neighbors are known
		t.Fatal(err)
	}
	ovs := b.nodes[0].ovs
	if _, err := ovs.Appctl(t.Context(), "revalidator/purge"); err != nil {
		t.Fatal(err)
	}
	c, err := called(t.Context(), from, "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 5 {
		if _, _, err := c.say("coelan", talkTime); err != nil {
			t.Fatal(err)
		}
	}
	if flows, err = ovs.Appctl(t.Context(), "dpctl/dump-flows"); err != nil {
		t.Fatal(err)
	}
	return recirculations(datapathFlows(flows)), flows
}
