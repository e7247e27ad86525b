// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agentapi"
)

func TestParseSource(t *testing.T) {
	outside := func(a string) Endpoint {
		return Endpoint{Outside: true, Addresses: []netip.Addr{netip.MustParseAddr(a)}}
	}
	for _, tc := range []struct {
		text string
		want Endpoint
		err  string
	}{
		{text: "web-0", want: Endpoint{Pod: "here/web-0"}},
		{text: "outside", want: Endpoint{Pod: "here/outside"}},
		{text: "outside:198.51.100.7", want: outside("198.51.100.7")},
		{text: "outside:2001:db8::7", want: outside("2001:db8::7")},
		{text: "outside:[2001:db8::7]", want: outside("2001:db8::7")},
		{text: "outside:198.51.100.7:80", err: `"198.51.100.7:80" is not an address; a packet from outside is outside:ADDRESS`},
		{text: "outside:", err: `"" is not an address`},
	} {
		got, err := ParseSource(tc.text, "here")
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: error %v, want one with %q", tc.text, err, tc.err)
			}
			continue
		}
		if diff := cmp.Diff(tc.want, got, addrs); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", tc.text, err, diff)
		}
	}
}

const someFloatingIPs = `{"items":[
	{"metadata":{"namespace":"shop","name":"web"},"spec":{"network":"office","port":"web.eth0"},
		"status":{"address":"198.51.100.32","node":"n1"}},
	{"metadata":{"namespace":"shop","name":"web-6"},"spec":{"network":"office","address":"2001:DB8:0::32","port":"web.eth0"},
		"status":{"address":"2001:db8::32","node":"n1"}},
	{"metadata":{"namespace":"shop","name":"spare"},"spec":{"network":"office"},"status":{"address":"198.51.100.33"}},
	{"metadata":{"namespace":"shop","name":"early"},"spec":{"network":"office","port":"db.eth0"},"status":{
		"address":"198.51.100.34","conditions":[{"type":"Ready","status":"True","reason":"NotBound","message":"there is no Port db.eth0"}]}},
	{"metadata":{"namespace":"shop","name":"taken"},"spec":{"network":"office","address":"198.51.100.35","port":"web.eth0"},
		"status":{"conditions":[{"type":"Ready","status":"False","reason":"AddressTaken","message":"node n1 has it"}]}},
	{"metadata":{"namespace":"shop","name":"svc"},"spec":{"network":"office","service":"web"},"status":{"address":"198.51.100.37",
		"conditions":[{"type":"Ready","status":"False","reason":"ServiceWithoutClusterIP","message":"service web is headless"}]}},
	{"metadata":{"namespace":"shop","name":"new"},"spec":{"network":"office","address":"198.51.100.36"}}]}`

const someNetworks = `{"items":[
	{"metadata":{"name":"red"},"spec":{"subnets":[{"cidr":"10.60.0.0/16"},{"cidr":"198.51.100.0/25"}]}},
	{"metadata":{"name":"office"},"spec":{"external":true,"subnets":[{"cidr":"198.51.100.0/24"},{"cidr":"2001:db8::/64"}]}}]}`

const someBlocks = `{"items":[
	{"spec":{"network":"office","cidr":"198.51.100.32/32","floatingIP":"shop/web"}},
	{"spec":{"network":"office","cidr":"198.51.100.48/28","node":"n2"}},
	{"spec":{"network":"office","cidr":"198.51.100.40/32","gateway":"red/n2"}},
	{"spec":{"network":"office","cidr":"198.51.100.41/32","gateway":"blue/*"},"status":{"activeNode":"n3"}},
	{"spec":{"network":"office","cidr":"198.51.100.42/32","gateway":"blue/*"}},
	{"spec":{"network":"office","cidr":"198.51.100.43/32","egress":"bank"},"status":{"activeNode":"n1"}},
	{"spec":{"network":"office","cidr":"198.51.100.44/32","egress":"bank"}},
	{"spec":{"network":"office","cidr":"2001:db8::40/128","gateway":"red/n2"}}]}`

// The node with the Port is found by the floating IP, or the error says what is wrong with it.
func TestFindAnswering(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/apis/coelan.io/v1alpha1/floatingips":
			fmt.Fprint(w, someFloatingIPs)
		case "/apis/coelan.io/v1alpha1/namespaces/shop/floatingips/web":
			fmt.Fprint(w, `{"status":{"node":"n3"}}`)
		case "/apis/coelan.io/v1alpha1/networks":
			fmt.Fprint(w, someNetworks)
		case "/apis/coelan.io/v1alpha1/addressblocks":
			fmt.Fprint(w, someBlocks)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	c, err := NewCluster(&rest.Config{Host: server.URL}, "coelan-system")
	if err != nil {
		t.Fatal(err)
	}
	if node, err := c.Answering(t.Context(), agentapi.TracedFloatingIP{Name: "shop/web"}); err != nil || node != "n3" {
		t.Errorf("node %q, %v answers for shop/web, want n3", node, err)
	}
	for to, tc := range map[string]struct{ node, err string }{
		"198.51.100.32:443": {node: "n1"},
		"2001:db8::32":      {node: "n1"},
		"198.51.100.40":     {node: "n2"},
		"2001:db8::40":      {node: "n2"},
		"198.51.100.41":     {node: "n3"},
		"198.51.100.42":     {err: "no node has reported that it is active for 198.51.100.42/32 of gateway of router blue: its condition GatewayReady"},
		"198.51.100.43":     {node: "n1"},
		"198.51.100.44":     {err: "no node has reported that it is active for 198.51.100.44/32 of egress bank: its condition Ready says"},
		"198.51.100.48":     {err: "no FloatingIP, Router's gateway or Egress has the address 198.51.100.48 of the external Network office"},
		"198.51.100.33":     {err: "FloatingIP shop/spare has the address 198.51.100.33 and stands for no Port and no Service: set its spec.port or spec.service"},
		"198.51.100.34":     {err: "no node answers for FloatingIP shop/early: NotBound: there is no Port db.eth0"},
		"198.51.100.35":     {err: "FloatingIP shop/taken asks for 198.51.100.35 and does not have it: AddressTaken: node n1 has it"},
		"198.51.100.37":     {err: "no node answers for FloatingIP shop/svc: ServiceWithoutClusterIP: service web is headless"},
		"198.51.100.36":     {err: "FloatingIP shop/new asks for 198.51.100.36 and does not have it: no controller has looked at it"},
		"198.51.100.99":     {err: "no FloatingIP, Router's gateway or Egress has the address 198.51.100.99"},
		"10.60.0.9":         {err: "10.60.0.9 is an address of Network red, which is not external"},
		"192.0.2.1":         {err: "192.0.2.1 is an address of no external Network"},
		"shop/web":          {err: "name the address of one that stands for shop/web in its place"},
	} {
		e, err := ParseEndpoint(to, "shop")
		if err != nil {
			t.Fatal(err)
		}
		e, err = c.FindAnswering(t.Context(), e)
		if e.Node != tc.node || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: node %q, error %v; want %q, %q", to, e.Node, err, tc.node, tc.err)
		}
	}
}

// What leaves for a floating IP of another node arrives there by the wire, from the floating IP of
// its sender.
func TestTraceFollowsTheFloatingIP(t *testing.T) {
	mine := &agentapi.TracedFloatingIP{Name: "shop/a", Address: netip.MustParseAddr("198.51.100.32"), Node: "one"}
	for name, tc := range map[string]struct {
		outcome string
		as, to  *agentapi.TracedFloatingIP
		nodes   int
	}{
		"of another node":          {"physical", mine, &agentapi.TracedFloatingIP{Node: "two"}, 2},
		"that the API knows":       {"physical", mine, &agentapi.TracedFloatingIP{Name: "shop/b", Port: "shop/b.eth0"}, 2},
		"of a Port on no node":     {"physical", mine, &agentapi.TracedFloatingIP{Name: "shop/c", Port: "shop/c.eth0"}, 1},
		"no floating IP":           {"physical", mine, nil, 1},
		"without one of its own":   {"gateway", nil, &agentapi.TracedFloatingIP{Node: "two"}, 1},
		"the MAC is not known yet": {"unresolved", mine, &agentapi.TracedFloatingIP{Node: "two"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			agents := &scripted{
				outcomes: map[string]agentapi.Outcome{"one": {Kind: tc.outcome}, "two": {Kind: "pod"}},
				answers:  map[string]string{"shop/b": "two"},
				as:       map[string]*agentapi.TracedFloatingIP{"one": tc.as}, to: map[string]*agentapi.TracedFloatingIP{"one": tc.to},
			}
			dst := netip.MustParseAddr("198.51.100.33")
			way, err := Trace(t.Context(), agents, Packet{
				Node: "one", From: "shop/a", Source: netip.MustParseAddr("10.0.1.2"), Destination: dst, Conntrack: []string{"trk,est"},
			})
			if err != nil || len(way) != tc.nodes {
				t.Fatalf("%d nodes, %v; want %d", len(way), err, tc.nodes)
			}
			want := agentapi.TraceRequest{From: "outside", Source: mine.Address, Destination: dst}
			if tc.nodes < 2 {
				return
			}
			if diff := cmp.Diff(want, agents.asked[1], addrs); diff != "" {
				t.Errorf("the second node was asked for another packet:\n%s", diff)
			}
		})
	}
}

// What leaves by a Router's gateway arrives with the gateway's address at the node that answers.
func TestTraceFollowsTheGateway(t *testing.T) {
	source, dst := netip.MustParseAddr("198.51.100.40"), netip.MustParseAddr("198.51.100.41")
	by := &agentapi.TracedGateway{Router: "red", Node: "one", Address: source}
	for name, tc := range map[string]struct {
		trace agentapi.Trace
		nodes int
	}{
		"to a floating IP":           {agentapi.Trace{LeavesBy: by, SentTo: &agentapi.TracedFloatingIP{Node: "two"}}, 2},
		"to another node's gateway":  {agentapi.Trace{LeavesBy: by, SentToGateway: &agentapi.TracedGateway{Node: "two"}}, 2},
		"to this node's":             {agentapi.Trace{LeavesBy: by, SentToGateway: by}, 1},
		"by the kernel to a gateway": {agentapi.Trace{SentToGateway: &agentapi.TracedGateway{Node: "two"}}, 1},
		"to the world":               {agentapi.Trace{LeavesBy: by}, 1},
	} {
		tc.trace.Node, tc.trace.Outcome = "one", agentapi.Outcome{Kind: "physical"}
		agents := &scripted{traces: map[string]agentapi.Trace{"one": tc.trace, "two": {Outcome: agentapi.Outcome{Kind: "drop"}}}}
		way, err := Trace(t.Context(), agents, Packet{Node: "one", From: "shop/a", Destination: dst})
		if err != nil || len(way) != tc.nodes {
			t.Errorf("%s: %d nodes, %v; want %d", name, len(way), err, tc.nodes)
		}
		want := agentapi.TraceRequest{From: "outside", Source: source, Destination: dst}
		if diff := cmp.Diff(want, agents.asked[len(agents.asked)-1], addrs); tc.nodes > 1 && diff != "" {
			t.Errorf("%s: the second node was asked for another packet:\n%s", name, diff)
		}
	}
}

// The node that answers for a Service is the one with an agent that says so.
func TestNodeAnsweringForService(t *testing.T) {
	a := netip.MustParseAddr("198.51.100.37")
	ready := []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	f := v1alpha1.FloatingIP{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "svc"}, Spec: v1alpha1.FloatingIPSpec{Network: "office", Service: "web"},
		Status: v1alpha1.FloatingIPStatus{Address: a.String(), Conditions: ready},
	}
	answers := func(namespace string, all ...netip.Addr) []agentapi.ServiceInfo {
		return []agentapi.ServiceInfo{{Namespace: namespace, Name: "web", Answers: all}}
	}
	for name, tc := range map[string]struct {
		lists map[string][]agentapi.ServiceInfo
		node  string
		err   string
	}{
		"one node":                      {map[string][]agentapi.ServiceInfo{"n1": answers("shop"), "n2": answers("shop", a), "n3": answers("shop")}, "n2", ""},
		"none":                          {map[string][]agentapi.ServiceInfo{"n1": answers("shop")}, "", "no node answers for 198.51.100.37, FloatingIP shop/svc of Service web"},
		"another address":               {map[string][]agentapi.ServiceInfo{"n1": answers("shop", a.Next())}, "", "on a node that is connected to Network office?"},
		"another Service":               {map[string][]agentapi.ServiceInfo{"n1": answers("other", a)}, "", "no node answers"},
		"an agent that does not answer": {map[string][]agentapi.ServiceInfo{"n1": nil, "n2": answers("shop", a)}, "n2", ""},
		"only such an agent":            {map[string][]agentapi.ServiceInfo{"n1": nil}, "", "the agent of node n1 does not answer"},
	} {
		node, err := nodeOf(t.Context(), &scripted{lists: tc.lists}, f)
		if node != tc.node || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: node %q, error %v; want %q, %q", name, node, err, tc.node, tc.err)
		}
	}
}

// What a node's kernel gives back to the bridge, for the Service of a FloatingIP, is traced on the
// same node, and from there to the endpoint.
func TestTraceFollowsTheKernel(t *testing.T) {
	dst, client := netip.MustParseAddr("198.51.100.37"), netip.MustParseAddr("203.0.113.9")
	returned := agentapi.TraceRequest{From: "gateway", Source: netip.MustParseAddr("10.244.1.1"), Destination: dst, Protocol: "tcp", DestinationPort: 80}
	agents := &twice{scripted: &scripted{traces: map[string]agentapi.Trace{"two": {Node: "two", Outcome: agentapi.Outcome{Kind: "pod"}}}}, ways: []agentapi.Trace{
		{
			Node: "one", SentTo: &agentapi.TracedFloatingIP{Name: "shop/svc", Service: "shop/web", Node: "one"}, Returns: &returned,
			Outcome: agentapi.Outcome{Kind: "gateway"},
		},
		{
			Node: "one", Service: &agentapi.TracedService{Name: "shop/web", Endpoint: netip.MustParseAddrPort("10.244.2.7:8080")},
			Outcome: agentapi.Outcome{Kind: "tunnel", Node: "two", VNI: 1},
		},
	}}
	way, err := Trace(t.Context(), agents, Packet{
		Node: "one", From: "outside", Source: client, Destination: dst, Protocol: "tcp", DestinationPort: 80, Conntrack: []string{"trk,new"},
	})
	if err != nil || len(way) != 3 || way[2].Node != "two" {
		t.Fatalf("way %+v, %v", way, err)
	}
	if diff := cmp.Diff(returned, agents.asked[1], addrs); diff != "" {
		t.Errorf("asked again for another packet:\n%s", diff)
	}
}

// twice answers the first traces of a node each in another way.
type twice struct {
	*scripted
	ways []agentapi.Trace
}

func (s *twice) Query(ctx context.Context, node, path string, body, out any) error {
	if path == "/v1/trace" && len(s.ways) > 0 {
		s.traces["one"], s.ways = s.ways[0], s.ways[1:]
	}
	return s.scripted.Query(ctx, node, path, body, out)
}
