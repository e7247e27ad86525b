// SPDX-License-Identifier: Apache-2.0

//go:build neutron && integration

package integration

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
	"coelan.io/coelan/internal/neutrontest"
	"coelan.io/coelan/internal/ovntest"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// TestNeutron is the backend neutron with a real Neutron: one for all, since it takes long to
// start.
func TestNeutron(t *testing.T) {
	l := lab.New(t, lab.Options{Neutron: true})
	w := &world{Lab: l, n1: l.Nodes[0], n2: l.Nodes[1]}
	w.addPods(t)
	for _, part := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"reach", neutronReach}, {"machine", neutronGuestOfPort}, {"machine of OpenStack", neutronMachine}, {"network of OpenStack", neutronLent},
		{"subnet of Kuryr's", neutronSubnet}, {"named port", neutronNamed}, {"subnet pools", neutronPools},
		{"changes by hand", neutronByHand},
		{"ready ports", neutronReady}, {"restarts", neutronRestarts}, {"away", neutronAway},
		{"node of OpenStack", neutronTrunk},
		{"node of OpenStack with a bare card", neutronBareMachine}, {"route targets", neutronTargets},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, w) })
	}
	if why := neutronFailure(w); why != "" {
		t.Errorf("not done: %s", why)
	}
}

// neutronFailure is why Neutron is not as wanted.
func neutronFailure(w *world) string {
	return w.Neutron.Unsupported()[intent.PolicyRef{Kind: intent.PolicyKind(intent.KindNetwork), Name: intent.DefaultNetworkName}]
}

// neutronPings counts lost packets of pods until it is asked.
func neutronPings(t *testing.T, w *world) (lost func()) {
	t.Helper()
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			for _, dst := range []netip.Addr{w.b.Address(lab.IPv4), w.c.Address(lab.IPv4), w.c.Address(lab.IPv6)} {
				r, err := (&probe.Ping{Dst: dst, Count: 3}).Run(t.Context(), w.a.Host)
				if err != nil || r.Lost() > 0 {
					t.Errorf("ping of %s: %+v, %v", dst, r, err)
				}
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	return func() { close(stop); <-ended }
}

// Pods and nodes reach each other by networks and ports that Neutron has. CHECK agrees, and so does
// the agent.
func neutronReach(t *testing.T, w *world) {
	neutronWaysOut(t, w)
	own, other := of(management(w.n1)), of(management(w.n2))
	for _, p := range []path{
		{"pod to pod on its node", w.a.Host, w.b.Host, w.b.Address, w.a.Address},
		{"pod to pod on another node", w.a.Host, w.c.Host, w.c.Address, w.a.Address},
		{"pod back to pod on another node", w.c.Host, w.a.Host, w.a.Address, w.c.Address},
		{"pod to its node", w.a.Host, w.n1.Host, w.n1.Address, w.a.Address},
		{"pod to another node's management address", w.a.Host, w.n2.Host, other, w.a.Address},
		{"pod to another node", w.a.Host, w.n2.Host, w.n2.Address, w.n1.Address},
		{"node to its pod", w.n1.Host, w.a.Host, w.a.Address, own},
		{"node to pod on another node", w.n1.Host, w.c.Host, w.c.Address, own},
	} {
		for f := range lab.Dual.Each {
			t.Run(p.name+" "+f.String(), func(t *testing.T) {
				neutronReaches(t, p, f)
			})
		}
	}
	for _, p := range []*lab.Pod{w.a, w.b, w.c, w.d} {
		must(t, p.Check(t.Context()))
	}
	for _, n := range w.Nodes {
		must(t, n.Check(t.Context()))
	}
}

// neutronWaysOut waits until each node has its way out of the cluster, for both families. Those are
// rows beside Neutron's, which the controller writes when it has read Neutron for the first time:
// until then pods of all nodes leave by the first one.
func neutronWaysOut(t *testing.T, w *world) {
	t.Helper()
	var rows []string
	neutronPoll(t, func() bool {
		text, err := w.OVN.Nbctl(t.Context(), "--bare", "--columns=_uuid", "find", "logical_router_policy", "priority=500")
		must(t, err)
		rows = strings.Fields(text)
		return len(rows) == 2*len(w.Nodes)
	}, func() { t.Errorf("%d rows of ways out for %d nodes", len(rows), len(w.Nodes)) })
	_, err := w.OVN.Nbctl(t.Context(), "sync")
	must(t, err)
}

// neutronCall asks the real Neutron.
func neutronCall(t *testing.T, w *world, method, path, body string) (answer map[string]any) {
	t.Helper()
	status, answer, err := neutronfake.Call(t.Context(), method, w.Neutron.Endpoint+"v2.0/"+path, body)
	if err != nil || status >= http.StatusBadRequest {
		t.Fatalf("%s %s: %d, %v, %v", method, path, status, answer, err)
	}
	return answer
}

// neutronOne is the one resource that a list has.
func neutronOne(t *testing.T, w *world, collection, query string) map[string]any {
	t.Helper()
	plural := strings.ReplaceAll(collection, "-", "_")
	list, _ := neutronCall(t, w, "GET", collection+"?"+query, "")[plural].([]any)
	if len(list) != 1 {
		t.Fatalf("%s?%s: %v", collection, query, list)
	}
	return list[0].(map[string]any)
}

// A machine that another program has made a port for, on a Network of a tenant and with an address
// that Neutron has chosen, and a pod there reach each other.
func neutronMachine(t *testing.T, w *world) {
	w.API.AddNamespace("red", map[string]string{"tenant": "red"})
	w.API.AddRouter("red", v1alpha1.RouterSpec{})
	w.API.AddNetwork("red", v1alpha1.NetworkSpec{
		Role: v1alpha1.Primary, Router: "red", Subnets: []v1alpha1.Subnet{{CIDR: "10.90.0.0/24", Ranges: []v1alpha1.AddressRange{{From: "10.90.0.2", To: "10.90.0.200"}}}},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": "red"}},
	})
	pod := addPodAs(t, w.n1, lab.PodSpec{Namespace: "red", Name: "web"})
	network := neutronOne(t, w, "networks", "name=net-red")
	guest, address := neutronGuest(t, w, "vm", network["id"], "10.90.0.1")
	var last error
	poll(t.Context(), t, func() bool {
		r, err := (&probe.Ping{Dst: address, Count: 1}).Run(t.Context(), pod.Host)
		last = err
		return err == nil && r.Lost() == 0
	}, func() { t.Errorf("the machine is not reached: %v", last) })
	// What the runtime knows of a tenant's pod is its address among the node's.
	if r := ping(t, guest.Host, probe.Ping{Dst: pod.Own("eth0", lab.IPv4), Count: 2}); r.Lost() > 0 {
		t.Errorf("the pod is not reached: %+v", r)
	}
	if r, err := (&probe.Ping{Dst: w.c.Address(lab.IPv4), Count: 1}).Run(t.Context(), pod.Host); err == nil && r.Lost() == 0 {
		t.Error("a tenant's pod reaches one of another")
	}

	// The next pods have ports that were ready, be it without the first one.
	made := func() (ids []string) {
		list, _ := neutronCall(t, w, "GET", "ports?network_id="+network["id"].(string)+"&device_owner=compute:kuryr", "")["ports"].([]any)
		for _, p := range list {
			ids = append(ids, p.(map[string]any)["id"].(string))
		}
		slices.Sort(ids)
		return ids
	}
	neutronPoll(t, func() bool { return len(made()) > reserved.NeutronSpareOfNetwork },
		func() { t.Errorf("of the Network there are the ports %v, and so few are ready", made()) })
	before := made()
	must(t, pod.Delete(t.Context()))
	for _, name := range []string{"web-1", "web-2"} {
		pod = addPodAs(t, w.n1, lab.PodSpec{Namespace: "red", Name: name})
		if r := ping(t, pod.Host, probe.Ping{Dst: address, Count: 1}); r.Lost() > 0 {
			t.Errorf("the machine is not reached from %s: %+v", name, r)
		}
		must(t, pod.Delete(t.Context()))
	}
	if after := made(); !slices.Equal(before, after) {
		t.Errorf("the ports of the Network were %v, and after two pods they are %v", before, after)
	}

	// Their end leaves nothing after a while, and takes nothing of others.
	neutronPoll(t, func() bool { return len(made()) == 0 }, func() { t.Errorf("the ports %v are still there", made()) })
	neutronOne(t, w, "ports", "name=vm")
}

// neutronGuest is a machine of another program on n2, on a network with a subnet of 24 bits, and
// the address that Neutron has chosen.
func neutronGuest(t *testing.T, w *world, name string, network any, gateway string) (*lab.Guest, netip.Addr) {
	t.Helper()
	vm := neutronCall(t, w, "POST", "ports", fmt.Sprintf(`{"port": {"project_id": %q, "network_id": %q, "name": %q,
		"device_owner": "compute:nova", "binding:host_id": "n2", "port_security_enabled": false}}`, neutrontest.Project,
		network, name))["port"].(map[string]any)
	ip, _ := vm["fixed_ips"].([]any)[0].(map[string]any)
	address := netip.MustParseAddr(ip["ip_address"].(string))
	guest, err := w.n2.AddGuest(t.Context(), name, vm["id"].(string), parseMAC(t, vm["mac_address"].(string)),
		[]netip.Prefix{netip.PrefixFrom(address, 24)}, netip.MustParseAddr(gateway))
	must(t, err)
	return guest, address
}

// neutronPoll is poll for what takes dozens of calls, each up to a second on a busy machine. It
// asks seldom, since its own calls take time as well.
func neutronPoll(t *testing.T, ok func() bool, failed func()) {
	t.Helper()
	const interval, patience = 500 * time.Millisecond, 2 * time.Minute
	pollEach(within(t, patience), t, interval, ok, failed)
}

// neutronPort is a pod's port in Neutron.
func neutronPort(t *testing.T, w *world, pod *lab.Pod) map[string]any {
	t.Helper()
	return neutronOne(t, w, "ports", "fixed_ips=ip_address%3D"+pod.Address(lab.IPv4).String())
}

// A port that is deleted by hand is made anew, and plugged; one that is changed is changed back.
func neutronByHand(t *testing.T, w *world) {
	before := neutronPort(t, w, w.b)
	v4, v6 := w.b.Address(lab.IPv4).String(), w.b.Address(lab.IPv6).String()
	if before["device_owner"] != "compute:kuryr" || before["device_id"] != "n1" || before["binding:host_id"] != "n1" ||
		before["name"] != "n1 "+v4 || before["description"] != "coelan/Node/n1 "+v4+" "+v6 || before["binding:vif_type"] != "ovs" {
		t.Errorf("port %v", before)
	}
	router := neutronOne(t, w, "routers", "name=router-default")
	neutronCall(t, w, "PUT", "routers/"+router["id"].(string), `{"router": {"routes": []}}`)
	neutronCall(t, w, "DELETE", "ports/"+before["id"].(string), "")
	// A controller that starts reads all; one that runs does so each minute.
	w.Neutron.StopController()
	must(t, w.Neutron.StartController())
	neutronPoll(t, func() bool {
		list, _ := neutronCall(t, w, "GET", "ports?fixed_ips=ip_address%3D"+v4, "")["ports"].([]any)
		return len(list) == 1 && list[0].(map[string]any)["status"] == "ACTIVE"
	}, func() { t.Error("the port is not there again, or not plugged") })
	poll(t.Context(), t, func() bool {
		routes, _ := neutronOne(t, w, "routers", "name=router-default")["routes"].([]any)
		return len(routes) > 0
	}, func() { t.Error("the router has no routes") })
	after := neutronPort(t, w, w.b)
	if after["id"] == before["id"] || after["mac_address"] != before["mac_address"] {
		t.Errorf("port %v was %v", after, before)
	}
	for _, p := range []path{
		{"pod to pod", w.a.Host, w.b.Host, w.b.Address, w.a.Address}, {"pod to another node", w.a.Host, w.n2.Host, w.n2.Address, w.n1.Address},
	} {
		neutronReaches(t, p, lab.IPv4)
	}
}

// neutronReaches asks until there is an answer: another node learns late where a port is.
func neutronReaches(t *testing.T, p path, f lab.Family) {
	t.Helper()
	var last error
	poll(t.Context(), t, func() bool { last = probePath(t.Context(), p, f); return last == nil },
		func() { t.Errorf("%s: %v", p.name, last) })
}

// neutronPorts are the ids of all ports, when each node has those that are to be ready.
func neutronPorts(t *testing.T, w *world) (ids []string) {
	t.Helper()
	var missing []netip.Addr
	neutronPoll(t, func() bool {
		ids = nil
		ready, taken := map[netip.Addr]bool{}, map[netip.Addr]bool{}
		list, _ := neutronCall(t, w, "GET", "ports", "")["ports"].([]any)
		for _, p := range list {
			port := p.(map[string]any)
			ids = append(ids, port["id"].(string))
			for _, ip := range port["fixed_ips"].([]any) {
				a := netip.MustParseAddr(ip.(map[string]any)["ip_address"].(string))
				ready[a], taken[a] = true, port["status"] == "ACTIVE"
			}
		}
		// Node addresses of tenants' pods have no ports.
		for _, p := range w.API.Ports() {
			for _, text := range p.Status.NodeAddresses {
				taken[netip.MustParseAddr(text)] = true
			}
		}
		missing = nil
		for _, n := range w.Nodes {
			ranges, err := ipam.Parse(n.PodCIDRs)
			must(t, err)
			for _, slot := range ipam.Slots(ranges, reserved.NeutronSpare, reserved.NeutronSpare, func(a netip.Addr) bool { return taken[a] }) {
				if !ready[slot[0]] {
					missing = append(missing, slot[0])
				}
			}
		}
		return len(missing) == 0
	}, func() { t.Errorf("no ports of %v are ready", missing) })
	slices.Sort(ids)
	return ids
}

// Pods that come and go have ports that are there before and after them.
func neutronReady(t *testing.T, w *world) {
	before := neutronPorts(t, w)
	var last string
	for i := range 8 {
		pod := addPodAs(t, w.n1, lab.PodSpec{Name: fmt.Sprint("ready", i)})
		neutronReaches(t, path{"ready " + pod.Name, pod.Host, w.c.Host, w.c.Address, pod.Address}, lab.IPv4)
		id := neutronPort(t, w, pod)["id"].(string)
		if !slices.Contains(before, id) || id == last {
			t.Errorf("pod %d has port %s, the one before it %s; there were %v", i, id, last, before)
		}
		last = id
		is := func(status string) func() bool {
			return func() bool { return neutronPort(t, w, pod)["status"] == status }
		}
		neutronPoll(t, is("ACTIVE"), func() { t.Errorf("port %s of pod %d is not plugged", id, i) })
		must(t, pod.Delete(t.Context()))
		neutronPoll(t, is("DOWN"), func() { t.Errorf("port %s of pod %d, which is gone, is plugged", id, i) })
	}
	after := neutronPorts(t, w)
	for _, id := range before {
		if !slices.Contains(after, id) {
			t.Errorf("port %s is gone", id)
		}
	}
}

// Agents and the controller that are killed and start anew change nothing, and no packet is lost.
func neutronRestarts(t *testing.T, w *world) {
	neutronPorts(t, w)
	before, plugged := neutronState(t, w), configuration(t, w.n1)
	lost := neutronPings(t, w)
	w.n1.KillAgent()
	w.Neutron.StopController()
	must(t, w.Neutron.StartController())
	must(t, w.n1.StartAgent(t.Context()))
	must(t, w.n1.Check(t.Context()))
	lost()
	if after := configuration(t, w.n1); after != plugged {
		t.Errorf("the database of Open vSwitch was\n%s\nand is\n%s", plugged, after)
	}
	if after := neutronState(t, w); after != before {
		t.Errorf("Neutron had\n%s\nand has\n%s", before, after)
	}
}

// neutronState is all that Neutron has of the cluster.
func neutronState(t *testing.T, w *world) string {
	t.Helper()
	var b strings.Builder
	for _, collection := range []string{"networks", "subnets", "routers", "ports", "security-groups"} {
		text, err := json.MarshalIndent(neutronCall(t, w, "GET", collection+"?sort_key=id&sort_dir=asc", ""), "", " ")
		must(t, err)
		b.Write(text)
	}
	return b.String()
}

// While Neutron is away, running pods lose nothing, others start, and the Network default says so;
// what has changed meanwhile is done when it is back.
func neutronAway(t *testing.T, w *world) {
	// A controller that has just started has to read first what there is.
	must(t, addPodAs(t, w.n2, lab.PodSpec{Name: "before"}).Delete(t.Context()))
	neutronPorts(t, w)
	lost := sync.OnceFunc(neutronPings(t, w))
	defer lost()
	w.Neutron.Stop()
	w.API.AddNetwork("later", v1alpha1.NetworkSpec{Subnets: subnets("10.91.0.0/24")})
	poll(t.Context(), t, func() bool { return strings.Contains(neutronFailure(w), "Neutron cannot be used") },
		func() { t.Error("it is not said that Neutron is away") })
	for i := range 3 {
		pod := addPodAs(t, w.n2, lab.PodSpec{Name: fmt.Sprint("without", i)})
		neutronReaches(t, path{"without Neutron " + pod.Name, pod.Host, w.a.Host, w.a.Address, pod.Address}, lab.IPv4)
		must(t, pod.Delete(t.Context()))
	}
	lost()
	must(t, w.Neutron.Run(t.Context()))
	// The longer Neutron was away, the later it is tried again: up to a minute.
	neutronPoll(t, func() bool { return neutronFailure(w) == "" },
		func() { t.Errorf("not done: %s", neutronFailure(w)) })
	neutronOne(t, w, "networks", "name=net-later")
}

func parseMAC(t *testing.T, text string) net.HardwareAddr {
	t.Helper()
	mac, err := net.ParseMAC(text)
	must(t, err)
	return mac
}

// The fake Neutron of other tests answers as the real one does.
func TestNeutronCases(t *testing.T) {
	ovn := ovntest.Start(t)
	ovn.Northd()
	neutronfake.Check(t, neutrontest.Start(t, ovn).Endpoint)
}
