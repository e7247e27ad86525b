// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/names"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/translate/translatetest"
	"coelan.io/coelan/internal/wellknown"
)

// showEndpoint is an Endpoint for a reader: what is at its zero value is left out.
func showEndpoint(e policy.Endpoint) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s/%s", e.Key, e.Namespace, e.Name)
	if e.Node != "" {
		b.WriteString(" on " + e.Node)
	}
	if len(e.Labels) > 0 {
		b.WriteString(" " + e.Labels.String())
	}
	for _, p := range e.Places {
		fmt.Fprintf(&b, " %s:%s", p.Space, p.Address)
		if p.Secondary {
			b.WriteString("(secondary)")
		}
	}
	for _, p := range e.NamedPorts {
		fmt.Fprintf(&b, " %s=%d:%d", p.Name, p.Protocol, p.Port)
	}
	if len(e.SecurityGroups) > 0 {
		fmt.Fprintf(&b, " groups %s", strings.Join(e.SecurityGroups, ","))
	}
	return b.String()
}

func endpointPod(name, uid string, change func(*corev1.Pod), ips ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(uid)}, Spec: corev1.PodSpec{NodeName: "n1"},
	}
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	if change != nil {
		change(p)
	}
	return p
}

func endpointPort(name, network string, pod *v1alpha1.PortPod, addresses []string, onNode ...string) *v1alpha1.Port {
	p := &v1alpha1.Port{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID("port-" + name)},
		Spec:       v1alpha1.PortSpec{Network: network, Pod: pod},
		Status:     v1alpha1.PortStatus{Addresses: addresses, NodeAddresses: onNode},
	}
	if pod != nil {
		p.Spec.Node = "n1"
	}
	return p
}

func endpointNode(name string, cidrs ...string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: cidrs}}
}

// endpointBlock is an AddressBlock by the name that it has to have.
func endpointBlock(network, cidr, node, port string) *v1alpha1.AddressBlock {
	return &v1alpha1.AddressBlock{
		ObjectMeta: metav1.ObjectMeta{Name: names.BlockName(network, netip.MustParsePrefix(cidr))},
		Spec:       v1alpha1.AddressBlockSpec{Network: network, CIDR: cidr, Node: node, Port: port},
	}
}

func endpointRouter(name string, id int32, imports, exports []string) *v1alpha1.Router {
	return &v1alpha1.Router{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.RouterStatus{ID: id},
		Spec: v1alpha1.RouterSpec{ImportRouteTargets: imports, ExportRouteTargets: exports},
	}
}

func endpointNetwork(name, router string, id int32, typ v1alpha1.NetworkType) *v1alpha1.Network {
	return &v1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.NetworkStatus{ID: id, Router: router},
		Spec: v1alpha1.NetworkSpec{Type: typ, Router: router, Subnets: endpointSubnets},
	}
}

// endpointSubnets have blocks of /28.
var endpointSubnets = []v1alpha1.Subnet{{CIDR: "10.8.0.0/24", Gateway: "10.8.0.1"}, {CIDR: "10.9.0.0/24"}}

func ofPod(name, uid, interfaceName string) *v1alpha1.PortPod {
	return &v1alpha1.PortPod{Name: name, UID: uid, Interface: interfaceName}
}

// staticUID is one of kubelet's.
const staticUID = "0123456789abcdef0123456789abcdef"

// endpointWorld are objects of all kinds, and the Endpoints that they make.
func endpointWorld() (objects []any, want []string) {
	cluster := []string{v1alpha1.DefaultRouteTarget}
	always := corev1.ContainerRestartPolicyAlways
	port := func(name string, protocol corev1.Protocol, number int32) corev1.Container {
		return corev1.Container{Ports: []corev1.ContainerPort{{Name: name, Protocol: protocol, ContainerPort: number}, {ContainerPort: 9}}}
	}
	vm := endpointPort("vm", "red-net", nil, []string{"10.9.0.7", "fd00:9::7"})
	vm.Labels, vm.Status.Node, vm.Spec.SecurityGroups = map[string]string{"app": "vm"}, "n2", []string{"web", "db"}
	asked := endpointPort("asked", "red-net", nil, nil)
	asked.Spec.Node = "n3"
	return []any{
			endpointNode("n1", "10.244.1.0/24", "fd00::/64"),
			endpointBlock("red-net", "10.9.0.0/28", "n1", ""), endpointBlock("green-net", "10.8.0.0/28", "n1", ""),
			endpointRouter("red", 5, []string{"64512:7"}, []string{"64512:8"}),
			endpointRouter("blue", 6, []string{"64512:8"}, []string{"64512:7"}),
			endpointRouter("green", 7, cluster, append(cluster, "64512:8")),
			endpointRouter("lost", 0, nil, nil),
			endpointNetwork("red-net", "red", 10, v1alpha1.Overlay), endpointNetwork("green-net", "green", 11, v1alpha1.Overlay),
			endpointNetwork("wire", "", 12, v1alpha1.VLAN), endpointNetwork("lost-net", "lost", 13, v1alpha1.Overlay),
			endpointNetwork("new", "red", 0, v1alpha1.Overlay),

			endpointPod("plain", "1", func(p *corev1.Pod) {
				p.Labels = map[string]string{"app": "web"}
				p.Spec.Containers = []corev1.Container{port("http", "", 80), port("dns", corev1.ProtocolUDP, 53), port("", "", 81), port("http", "", 80)}
				p.Spec.InitContainers = []corev1.Container{port("early", "", 82), port("beside", corev1.ProtocolSCTP, 83)}
				p.Spec.InitContainers[1].RestartPolicy = &always
			}, "10.244.1.5", "fd00::5"),
			endpointPort("plain.eth0", "default", ofPod("plain", "1", "eth0"), []string{"10.244.1.5", "fd00::5"}),
			endpointPort("old.eth0", "default", ofPod("plain", "0", "eth0"), []string{"10.244.1.9"}),
			endpointPod("tenant", "2", func(p *corev1.Pod) {
				p.Annotations = map[string]string{v1alpha1.AnnotationSecurityGroups: " web,,db , web"}
			}, "10.244.1.6"),
			endpointPort("tenant.eth0", "red-net", ofPod("tenant", "2", "eth0"), []string{"10.9.0.5"}, "10.244.1.6"),
			endpointPort("tenant.net1", "green-net", ofPod("tenant", "2", "net1"), []string{"10.8.0.5"}),
			endpointPort("tenant.net2", "wire", ofPod("tenant", "2", "net2"), []string{"192.0.2.5"}),
			endpointPort("tenant.net3", "lost-net", ofPod("tenant", "2", "net3"), []string{"192.0.2.6"}),
			endpointPort("tenant.net4", "new", ofPod("tenant", "2", "net4"), []string{"192.0.2.7"}),
			endpointPort("tenant.net5", "nowhere", ofPod("tenant", "2", "net5"), []string{"192.0.2.8"}),
			endpointPod("static", "mirror", func(p *corev1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.hash": staticUID} }),
			endpointPort("static.eth0", "default", ofPod("static", "mirror", "eth0"), []string{"10.244.1.8"}),
			endpointPod("host", "3", func(p *corev1.Pod) { p.Spec.HostNetwork = true }, "192.0.2.1"),
			endpointPod("done", "4", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, "10.244.1.7"),
			endpointPod("waits", "5", func(p *corev1.Pod) { p.Spec.NodeName = "" }),
			endpointPod("bad", "6", nil, "10.244.1", "::ffff:10.0.0.1", "10.244.1.10"),
			vm, asked,
		}, []string{
			"pod/1 a/plain on n1 app=web default:10.244.1.5 default:fd00::5 beside=132:83 dns=17:53 http=6:80",
			"pod/2 a/tenant on n1 blue:10.8.0.5(secondary) blue:10.9.0.5 default:10.8.0.5(secondary) default:10.244.1.6 red:10.9.0.5 groups a/db,a/web",
			"pod/6 a/bad on n1 default:10.244.1.10",
			"port/a/asked a/asked on n3",
			"port/a/vm a/vm on n2 app=vm blue:10.9.0.7 blue:fd00:9::7 red:10.9.0.7 red:fd00:9::7 groups a/db,a/web",
			"static/a/static/" + staticUID + " a/static on n1 default:10.244.1.8",
		}
}

func (e *Endpoints) give(o any) {
	switch o := o.(type) {
	case *corev1.Pod:
		e.SetPod(o)
	case *v1alpha1.Port:
		e.SetPort(o)
	case *v1alpha1.Network:
		e.SetNetwork(o)
	case *v1alpha1.Router:
		e.SetRouter(o)
	case *corev1.Node:
		e.SetNode(o)
	case *v1alpha1.AddressBlock:
		e.SetBlock(o)
	}
}

func (e *Endpoints) take(o any) {
	switch o := o.(type) {
	case *corev1.Pod:
		e.DeletePod(o.Namespace, o.Name)
	case *v1alpha1.Port:
		e.DeletePort(o.Namespace, o.Name)
	case *v1alpha1.Network:
		e.DeleteNetwork(o.Name)
	case *v1alpha1.Router:
		e.DeleteRouter(o.Name)
	case *corev1.Node:
		e.DeleteNode(o.Name)
	case *v1alpha1.AddressBlock:
		e.DeleteBlock(o.Name)
	}
}

// Whatever the order in which objects come, go and come again, and are checked: the Endpoints are
// those of what is there.
func TestPolicyEndpoints(t *testing.T) {
	for range 100 {
		objects, want := endpointWorld()
		e := NewEndpoints()
		have := map[string]string{}
		look := func() {
			set, gone := e.Changes()
			for _, key := range gone {
				if have[key] == "" {
					t.Fatalf("%s is gone that was not there", key)
				}
				delete(have, key)
			}
			for _, endpoint := range set {
				text := showEndpoint(endpoint)
				if have[endpoint.Key] == text {
					t.Fatalf("no news: %s", text)
				}
				have[endpoint.Key] = text
			}
		}
		var events []func()
		for _, o := range objects {
			events = append(events, func() { e.give(o) })
			if rand.IntN(3) == 0 {
				events = append(events, func() { e.take(o) }, look)
			}
		}
		translatetest.Shuffle(events)
		for _, event := range events {
			event()
		}
		translatetest.Shuffle(objects)
		for _, o := range objects {
			e.give(o)
			if rand.IntN(3) == 0 {
				look()
			}
		}
		look()
		var got []string
		for _, text := range have {
			got = append(got, text)
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("Endpoints (-want +got):\n%s", diff)
		}
		for _, o := range objects {
			e.take(o)
		}
		if look(); len(have) > 0 {
			t.Fatalf("left: %v", have)
		}
	}
}

// A writer of a Port's status must not make nodes refuse what they are sent.
func TestAddressesThatNoPacketHas(t *testing.T) {
	const good = "fe80::1"
	bad := []string{good + "%a", good + "%b", "::ffff:10.0.0.1", "10.0.0", ""}
	e := NewEndpoints()
	e.SetNode(endpointNode("n1", "fe80::/64", "0.0.0.0/0", "::ffff:0.0.0.0/96"))
	e.SetNetwork(&v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "red"}, Spec: v1alpha1.NetworkSpec{Router: "red"}})
	e.SetPod(endpointPod("pod", "u", nil, append(bad, good)...))
	e.SetPort(endpointPort("vm", "red", nil, nil, append(bad, good)...))
	set, _ := e.Changes()
	for _, endpoint := range set {
		if places := endpoint.Places; len(places) != 1 || places[0].Address != netip.MustParseAddr(good) {
			t.Errorf("%s is at %v", endpoint.Key, places)
		}
	}
	if len(set) != 2 {
		t.Errorf("%d Endpoints", len(set))
	}
}

// A node's agent is believed of its own pods, until the API has their addresses.
func TestAttachmentsBeforeTheAPIKnows(t *testing.T) {
	attached := func(name, uid, address string) policy.Attachment {
		return policy.Attachment{Namespace: "a", Name: name, Subject: intent.PodSubject(uid), Addresses: []netip.Addr{netip.MustParseAddr(address)}}
	}
	e := NewEndpoints()
	at := func() string {
		e.Changes()
		var texts []string
		for _, place := range e.made[intent.PodSubject("1")].Places {
			texts = append(texts, place.Space+":"+place.Address.String())
		}
		return strings.Join(texts, " ")
	}
	check := func(what, want string) {
		t.Helper()
		if got := at(); got != want {
			t.Errorf("%s: the pod is at %q, want %q", what, got, want)
		}
	}
	e.SetAttachment("n1", attached("p", "1", "10.244.1.9"))
	e.SetPod(endpointPod("p", "1", nil))
	check("told before the pod was known", "")
	e.SetNode(endpointNode("n1", "10.244.1.0/24"))
	e.SetAttachment("n2", attached("p", "1", "10.244.1.9"))
	check("told by another node", "")
	e.SetAttachment("n1", attached("p", "2", "10.244.1.9"))
	check("told of another pod of the name", "")
	e.SetAttachment("n1", attached("p", "1", "10.244.2.5"))
	check("told an address of another node", "")
	e.SetAttachment("n1", attached("p", "1", "10.244.1.5"))
	check("told by its node", "default:10.244.1.5")
	e.DeleteNode("n1")
	check("and the node is gone", "")
	e.SetNode(endpointNode("n1", "10.244.1.0/24"))
	check("and there again", "default:10.244.1.5")
	e.SetPod(endpointPod("p", "1", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "db"} }))
	check("and labeled", "default:10.244.1.5")
	e.SetPod(endpointPod("p", "1", nil, "10.244.1.6"))
	check("the API knows", "default:10.244.1.6")
	e.SetAttachment("n1", attached("p", "1", "10.244.1.5"))
	check("told thereafter", "default:10.244.1.6")
	e.SetPod(endpointPod("q", "7", nil))
	e.SetAttachment("n1", attached("q", "7", "10.244.1.7"))
	e.SetPod(endpointPod("q", "8", nil))
	e.DeletePod("a", "p")
	if e.Changes(); len(e.made[intent.PodSubject("8")].Places)+len(e.attached) > 0 {
		t.Errorf("what was told of a pod is kept for the next of its name: %+v", e.attached)
	}
}

// A pod that is made again under its name is another one.
func TestPodIsMadeAgain(t *testing.T) {
	e := NewEndpoints()
	e.SetPod(endpointPod("p", "1", nil, "10.244.1.5"))
	e.Changes()
	e.SetPod(endpointPod("p", "2", nil, "10.244.1.6"))
	set, gone := e.Changes()
	if len(set) != 1 || set[0].Key != "pod/2" || !slices.Equal(gone, []string{"pod/1"}) {
		t.Errorf("%+v, %v", set, gone)
	}
	e.SetPod(endpointPod("p", "2", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, "10.244.1.6"))
	if set, gone = e.Changes(); len(set) != 0 || !slices.Equal(gone, []string{"pod/2"}) {
		t.Errorf("%+v, %v", set, gone)
	}
}

// Whatever UID a pod claims in its annotations: it takes the place of no other pod.
func TestNobodyTakesThePlaceOfAPod(t *testing.T) {
	claims := func(name, uid, claimed string) *corev1.Pod {
		return endpointPod(name, uid, func(p *corev1.Pod) { p.Annotations = map[string]string{wellknown.AnnotationConfigHash: claimed} })
	}
	const victim = "0c1ff3ee-0000-0000-0000-000000000000"
	for range 20 {
		pods := []*corev1.Pod{
			endpointPod("victim", victim, nil), claims("static", "mirror", staticUID), claims("thief", "1", victim), claims("other", "2", staticUID),
		}
		translatetest.Shuffle(pods)
		e := NewEndpoints()
		for _, p := range pods {
			e.SetPod(p)
		}
		got := map[string]string{}
		set, _ := e.Changes()
		for _, endpoint := range set {
			got[endpoint.Key] = endpoint.Name
		}
		e.DeletePod("a", "thief")
		e.DeletePod("a", "other")
		_, gone := e.Changes()
		for _, key := range gone {
			delete(got, key)
		}
		want := map[string]string{"pod/" + victim: "victim", "static/a/static/" + staticUID: "static"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("Endpoints (-want +got):\n%s", diff)
		}
	}
	// The node knows it by the same key.
	node := intent.Port{Namespace: "a", Pod: "static", Interface: "eth0", UID: staticUID}
	if key := node.SubjectKey(); key != "static/a/static/"+staticUID {
		t.Errorf("the node's key is %s", key)
	}
}

// A pod or Port that names a missing SecurityGroup, or an invalid name, is reported
// until there is one.
func TestUnknownSecurityGroups(t *testing.T) {
	e := NewEndpoints()
	e.SetPod(endpointPod("p", "1", func(p *corev1.Pod) {
		p.Annotations = map[string]string{v1alpha1.AnnotationSecurityGroups: "web, No Group,b/web"}
	}))
	vm := endpointPort("vm", "n", nil, nil)
	vm.Spec.SecurityGroups = []string{"web"}
	e.SetPort(vm)
	problems := func() (list []string) {
		e.Changes()
		for _, p := range e.Problems() {
			list = append(list, fmt.Sprintf("%s %s %s: %s %s %s", p.UID, p.NamespacedName, p.Object, p.Field, p.Value, p.Reason))
		}
		return list
	}
	annotation := "metadata.annotations[coelan.io/security-groups]"
	bad := []string{"1 a/p pod a/p: " + annotation + " No Group Malformed", "1 a/p pod a/p: " + annotation + " b/web Malformed"}
	unknown := append(slices.Clone(bad), "1 a/p pod a/p: "+annotation+" web NotFound", "port-vm a/vm port a/vm: spec.securityGroups web NotFound")
	if diff := cmp.Diff(unknown, problems()); diff != "" {
		t.Errorf("without groups (-want +got):\n%s", diff)
	}
	e.SetSecurityGroup("a", "web")
	e.SetSecurityGroup("b", "web")
	if diff := cmp.Diff(bad, problems()); diff != "" {
		t.Errorf("with groups (-want +got):\n%s", diff)
	}
	e.DeletePod("a", "p")
	e.DeleteSecurityGroup("a", "web")
	if diff := cmp.Diff(unknown[3:], problems()); diff != "" {
		t.Errorf("without the pod (-want +got):\n%s", diff)
	}
}

// However much a pod writes in its annotation: what is kept is bounded, and the pod is closed.
func TestTooManySecurityGroups(t *testing.T) {
	named := func(names string) []string {
		e := NewEndpoints()
		e.SetPod(endpointPod("p", "1", func(p *corev1.Pod) { p.Annotations = map[string]string{v1alpha1.AnnotationSecurityGroups: names} }))
		set, _ := e.Changes()
		for _, name := range set[0].SecurityGroups {
			e.SetSecurityGroup("a", strings.TrimPrefix(name, "a/"))
		}
		if e.Changes(); len(e.Problems()) != 1 {
			t.Errorf("problems: %+v", e.Problems())
		}
		return set[0].SecurityGroups
	}
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("g%03d", i))
	}
	if got := named(strings.Join(many, ",")); len(got) != 33 || got[0] != "a/and 968 more" || got[32] != "a/g031" {
		t.Errorf("of 1,000 names: %v", got)
	}
	if got := named(strings.Repeat("é", 1<<16)); len(got) != 1 || len(got[0]) > 300 {
		t.Errorf("of a long name %d bytes", len(got[0]))
	}
	// Nothing of a name is taken for what tells one group from the next.
	if got := named("x\x00a/y"); len(got) != 1 || got[0] != "a/x\uFFFDa/y" {
		t.Errorf("of a name with a zero byte: %q", got)
	}
}

// A node is all of its addresses, and those of its gateways.
func TestPolicyNode(t *testing.T) {
	o := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"zone": "a"}},
		Spec:       corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24", "x", "fd00::/64"}},
	}
	for _, a := range []string{"192.0.2.1", "node1", "2001:db8::1", "192.0.2.1", "::ffff:10.0.0.1", "198.51.100.1"} {
		o.Status.Addresses = append(o.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	want := policy.Node{Name: "n1", Labels: map[string]string{"zone": "a"}}
	for _, a := range []string{"10.244.1.1", "192.0.2.1", "198.51.100.1", "2001:db8::1", "fd00::1"} {
		want.Addresses = append(want.Addresses, netip.MustParseAddr(a))
	}
	if diff := cmp.Diff(want, Node(o, nil), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
}
