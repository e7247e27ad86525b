// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/restconf/datatree"
	"coelan.io/coelan/internal/restconf/mapping"
)

// wholeObject is an entry of the module coelan with every node that can be written.
type wholeObject struct{ container, list, key, entry string }

// wholeObjects are such entries. Nodes that the API does not take beside others are in a second
// entry of the list. Each refers to those before it alone.
var wholeObjects = []wholeObject{
	{"routers", "router", "office", `{"name":"office","description":"a tenant","route-distinguisher":"64512:10","import-route-target":["64512:100","64512:101"],
		"export-route-target":["192.0.2.1:100"],"route":[{"destination":"192.168.20.0/24","next-hop":"10.10.0.9"},{"destination":"192.168.10.0/24","next-hop":"10.10.0.8"}],
		"gateway":{"network":"wan","snat":"centralized","address":["203.0.113.7"],"failback":true,
			"nodes":{"match-label":[{"key":"edge","value":"yes"}],"match-expression":[{"position":0,"key":"zone","operator":"not-in","value":["a","b"]}]}}}`},
	{"routers", "router", "lab", `{"name":"lab","gateway":{"network":"wan","snat":"distributed","snat-family":["ipv4"],"nodes":{}}}`},
	{"networks", "network", "wan", `{"name":"wan","type":"vlan","vlan":100,"physical-network":"Uplink_1","role":"secondary","ipam":"blocks","external":true,
		"subnet":[{"cidr":"203.0.113.0/24","gateway":"203.0.113.1"}],"fixed":{"addresses":"ranges","macs":"local"}}`},
	{"networks", "network", "red", `{"name":"red","description":"ten hosts","type":"overlay","vni":70010,"role":"primary","namespace-selector":{"match-expression":[{"position":0,"key":"red","operator":"exists"}]},
		"router":"office","mtu":1400,"ipam":"blocks","node":"worker1",
		"subnet":[{"cidr":"fd00:10::/64"},{"cidr":"10.10.0.0/16","gateway":"10.10.0.1","range":[{"position":0,"from":"10.10.0.10","to":"10.10.0.20"},{"position":1,"from":"10.10.1.0","to":"10.10.1.255"}],
			"exclusion":["10.10.0.12","10.10.1.0/28"],"route":[{"destination":"192.0.2.0/24","next-hop":"10.10.0.9"}],"block-prefix-length":28}],
		"dns":{"nameserver":["10.10.0.53"],"search":["red.example"],"option":["ndots:2"]},
		"dhcp":{"lease-seconds":600,"address-mode":"stateless","ntp-server":["10.10.0.54"],"next-server":"10.10.0.55","boot-file":"pxe.0"}}`},
	{"networks", "network", "plain", `{"name":"plain","type":"overlay","role":"primary","ipam":"pod-cidr","namespace-selector":{"match-label":[{"key":"a"}]}}`},
	{"networks", "network", "leased", `{"name":"leased","type":"vlan","vlan":101,"physical-network":"Uplink_1","role":"secondary","ipam":"dhcp",
		"dhcp-relay":{"server":["192.0.2.7","198.51.100.7"],"subnet":"192.168.70.0/24"}}`},
	{"security-groups", "security-group", "default,web", `{"namespace":"default","name":"web","description":"servers","rule":[
		{"position":0,"direction":"ingress","ether-type":"ipv4","protocol":"tcp","port-range-min":80,"port-range-max":81,"remote-ip-prefix":"10.0.0.0/8","description":"clients"},
		{"position":1,"direction":"egress","ether-type":"ipv6","protocol":"icmpv6","port-range-min":0,"remote-group":"other/db"}]}`},
	{"ports", "port", "default,vm1", `{"namespace":"default","name":"vm1","description":"a machine","network":"wan","mac":"0a:00:00:00:00:09","address":["203.0.113.9"],
		"node":"worker1","security-group":["web"],"trusted":true}`},
	{"floating-ips", "floating-ip", "default,vm1", `{"namespace":"default","name":"vm1","description":"its address","network":"wan","address":"203.0.113.20","ip-family":"ipv4","port":"vm1"}`},
	{"floating-ips", "floating-ip", "default,web", `{"namespace":"default","name":"web","network":"wan","service":"web"}`},
	{"egresses", "egress", "mail", `{"name":"mail","description":"by a firewall","namespace-selector":{},"pod-selector":{"match-label":[{"key":"app","value":"mail"}]},"network":"wan","address":["203.0.113.30"],
		"destination":["198.51.100.0/24"],"policy-route":{"next-hop":["203.0.113.2"],"health-check":{"type":"bfd","interval-milliseconds":100,"failure-threshold":5}},"nodes":{},"failback":true}`},
	{"egresses", "egress", "rest", `{"name":"rest","pod-selector":{},"network":"wan","count":2}`},
	{"load-balancer-pools", "load-balancer-pool", "front", `{"name":"front","description":"of the front","address":["192.0.2.32/28","192.0.2.64-192.0.2.70"],"auto-assign":false,
		"namespace-selector":{"match-label":[{"key":"front","value":"yes"}]},"node-selector":{"match-expression":[{"position":0,"key":"edge","operator":"in","value":["yes"]}]}}`},
	{"node-network-configs", "node-network-config", "worker1", `{"name":"worker1","description":"the first","node-name":"worker1","mtu":1400,"encapsulation":"geneve",
		"bridge-mappings":{"bridge-mapping":[{"physical-network":"Uplink_1","bridge":"br-ex"}]},
		"uplinks":{"uplink":[{"physical-network":"Uplink_2","interface":"eth1","bridge":"br-two","shared":true}]},
		"subnet":[{"network":"red","cidr":["10.10.128.0/17","10.10.0.0/17"]}]}`},
	{"node-network-configs", "node-network-config", "rest", `{"name":"rest","node-selector":{"match-expression":[{"position":0,"key":"old","operator":"does-not-exist"}]},"bridge-mappings":{},"uplinks":{}}`},
}

func (o wholeObject) parent() string  { return "/restconf/data/coelan:" + o.container }
func (o wholeObject) path() string    { return o.parent() + "/" + o.list + "=" + o.key }
func (o wholeObject) message() string { return `{"coelan:` + o.list + `":[` + o.entry + `]}` }

// TestWholeObjects writes every node of the module coelan, and reads it back.
func TestWholeObjects(t *testing.T) {
	s := newSite(t)
	for _, o := range wholeObjects {
		t.Run(o.container+" "+o.key, func(t *testing.T) {
			s := &site{T: t, api: s.api, h: s.h}
			made := s.want(201, "POST", o.parent(), o.message())
			if got := made.head.Get("Location"); !strings.HasSuffix(got, o.path()) {
				t.Errorf("made at %s", got)
			}
			first := s.want(200, "GET", o.path()+"?content=config", "")
			s.same(first.body, o.message())
			if made.head.Get("ETag") != first.head.Get("ETag") {
				t.Error("what was made has another entity-tag than it is read with")
			}
			put := s.want(204, "PUT", o.path(), o.message(), "If-Match", first.head.Get("ETag"))
			if again := s.want(200, "GET", o.path(), ""); again.head.Get("ETag") != first.head.Get("ETag") || put.head.Get("ETag") != first.head.Get("ETag") {
				t.Error("the same entry written again has another entity-tag")
			}
			s.do("POST", o.parent(), o.message()).refuses(t, 409, "data-exists", o.list)
			s.want(204, "PATCH", o.path(), `{"coelan:`+o.list+`":[{`+keysOnly(o)+`,"description":"another"}]}`)
			want := map[string]any{}
			if err := json.Unmarshal([]byte(o.entry), &want); err != nil {
				t.Fatal(err)
			}
			want["description"] = "another"
			text, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			s.same(s.want(200, "GET", o.path()+"?content=config", "").body, `{"coelan:`+o.list+`":[`+string(text)+`]}`)
			s.do("PUT", o.path(), o.message(), "If-Match", first.head.Get("ETag")).refuses(t, 412, "operation-failed", o.list)
			s.want(204, "DELETE", o.path()+"/description", "")
			s.want(204, "PUT", o.path(), o.message())
		})
	}
	s.everyNode()
	for i := len(wholeObjects) - 1; i >= 0; i-- {
		s.want(204, "DELETE", wholeObjects[i].path(), "")
		s.want(404, "GET", wholeObjects[i].path(), "")
	}
}

// keysOnly are the members of an object that its key consists of.
func keysOnly(o wholeObject) string {
	namespace, name, namespaced := strings.Cut(o.key, ",")
	if !namespaced {
		return `"name":"` + o.key + `"`
	}
	return `"namespace":"` + namespace + `","name":"` + name + `"`
}

// everyNode compares the entries with the models: there is none for a node that is missing in them.
func (s *site) everyNode() {
	s.Helper()
	seen := map[string]bool{}
	var walk func(n *datatree.Node, value any)
	// A selector's conditions are the same nodes in each of them.
	id := func(n *datatree.Node) string {
		if at := strings.Index(n.Path(), "/match-"); at >= 0 {
			return n.Path()[at:]
		}
		return n.Path()
	}
	walk = func(n *datatree.Node, value any) {
		seen[id(n)] = true
		switch value := value.(type) {
		case map[string]any:
			for name, below := range value {
				if c := n.Children[name]; c != nil {
					walk(c, below)
				}
			}
		case []any:
			for _, entry := range value {
				walk(n, entry)
			}
		}
	}
	d := newDatastore(slog.New(slog.DiscardHandler), s.api, nil)
	lists := mapping.Lists()
	for _, o := range wholeObjects {
		var entry map[string]any
		if err := json.Unmarshal([]byte(o.entry), &entry); err != nil {
			s.Fatal(err)
		}
		walk(d.node(lists[o.container]), entry)
	}
	var missing func(n *datatree.Node)
	missing = func(n *datatree.Node) {
		if n.State {
			return
		}
		if !seen[id(n)] {
			s.Errorf("%s is in no entry of the test", n.Path())
		}
		for _, c := range n.Children {
			missing(c)
		}
	}
	for name, l := range lists {
		if d.schema.Children[name].Module == "coelan" {
			missing(d.node(l))
		}
	}
}

// TestObjectsState has what Coelan made of objects, and the objects that it makes.
func TestObjectsState(t *testing.T) {
	s := newSite(t)
	at := metav1.NewTime(metav1.Now().UTC().Truncate(1e9))
	s.api.world.Networks["red"] = &v1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{Name: "red"}, Spec: v1alpha1.NetworkSpec{Type: v1alpha1.Overlay},
		Status: v1alpha1.NetworkStatus{VNI: 70010, Subnets: []string{"10.10.0.0/16"}, AddressesFree: 1 << 40, Conditions: []metav1.Condition{
			{Type: "Ready", Status: metav1.ConditionFalse, ObservedGeneration: 2, Reason: "SubnetOverlaps", Message: "why", LastTransitionTime: at},
		}},
	}
	when := at.UTC().Format("2006-01-02T15:04:05Z")
	status := `{"vni":70010,"subnet":["10.10.0.0/16"],"addresses-free":"1099511627776","condition":[
		{"type":"Ready","status":"false","observed-generation":"2","reason":"SubnetOverlaps","message":"why","last-transition-time":"` + when + `"}]}`
	got := s.want(200, "GET", "/restconf/data/coelan:networks/network=red", "")
	s.same(got.body, `{"coelan:network":[{"name":"red","type":"overlay","status":`+status+`}]}`)
	tag := got.head.Get("ETag")
	s.same(s.want(200, "GET", "/restconf/data/coelan:networks/network=red/status?depth=3", "").body, `{"coelan:status":`+status+`}`)
	s.api.world.Networks["red"].Status.VNI = 70011
	if again := s.want(200, "GET", "/restconf/data/coelan:networks/network=red", ""); again.head.Get("ETag") != tag {
		t.Error("state changes the entity-tag")
	}
	pod := types.NamespacedName{Namespace: "a", Name: "web-0.eth0"}
	s.api.world.Ports[pod] = &v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web-0.eth0"}, Spec: v1alpha1.PortSpec{
		Network: "red", MAC: "0A:00:00:00:00:01", Pod: &v1alpha1.PortPod{Name: "web-0", UID: "1", Interface: "eth0"},
	}, Status: v1alpha1.PortStatus{Phase: v1alpha1.PortBound, BoundTime: &at}}
	s.want(404, "GET", "/restconf/data/coelan:ports/port=a,web-0.eth0", "")
	s.same(s.want(200, "GET", "/restconf/ds/ietf-datastores:operational/coelan:ports/port=a,web-0.eth0", "").body,
		`{"coelan:port":[{"namespace":"a","name":"web-0.eth0","network":"red","mac":"0a:00:00:00:00:01",
			"pod":{"name":"web-0","uid":"1","interface":"eth0"},"status":{"phase":"bound","bound-time":"`+when+`"}}]}`)
	s.do("PUT", "/restconf/data/coelan:ports/port=a,web-0.eth0", `{"coelan:port":[{"namespace":"a","name":"web-0.eth0","network":"red"}]}`).
		refuses(t, 501, "operation-not-supported", "for what is plugged")
	s.do("DELETE", "/restconf/data/coelan:networks/network=red", "").refuses(t, 409, "in-use", "a/web-0.eth0")
	s.want(204, "PUT", "/restconf/data/coelan:ports", `{"coelan:ports":{}}`)
	if s.api.world.Ports[pod] == nil {
		t.Error("a pod's Port was removed")
	}
	s.api.world.Put(mapping.Blocks, &v1alpha1.AddressBlock{ObjectMeta: metav1.ObjectMeta{Name: "red-1"}, Spec: v1alpha1.AddressBlockSpec{
		Network: "red", CIDR: "10.10.0.16/28", Node: "worker1",
	}, Status: v1alpha1.AddressBlockStatus{Used: 3}})
	s.same(s.want(200, "GET", "/restconf/data/coelan:address-blocks", "").body,
		`{"coelan:address-blocks":{"address-block":[{"name":"red-1","network":"red","cidr":"10.10.0.16/28","node":"worker1","status":{"used":3}}]}}`)
	s.do("DELETE", "/restconf/data/coelan:address-blocks/address-block=red-1", "").refuses(t, 405, "operation-not-supported", "address-block")
}

// TestPortOfAMachine has a Port that an agent has made for a machine which names none: it is state,
// and no view of it lets clients change or remove it.
func TestPortOfAMachine(t *testing.T) {
	s := newSite(t)
	s.want(201, "PUT", "/restconf/data/coelan:networks/network=red", `{"coelan:network":[{"name":"red"}]}`)
	const uid = "11111111-2222-3333-4444-555555555555"
	key := types.NamespacedName{Namespace: "a", Name: "vm"}
	s.api.world.Ports[key] = &v1alpha1.Port{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "vm", UID: uid},
		Spec:       v1alpha1.PortSpec{Network: "red", MAC: "0a:00:00:00:00:01", Node: "worker1", Dynamic: true},
	}
	for path, body := range map[string]string{
		"coelan:ports/port=a,vm":                      `{"coelan:port":[{"namespace":"a","name":"vm","network":"red"}]}`,
		"elan:elan-interfaces/elan-interface=a%3Avm":  `{"elan:elan-interface":[{"name":"a:vm","elan-instance-name":"red"}]}`,
		"l3vpn:vpn-interfaces/vpn-interface=a%3Avm":   `{"l3vpn:vpn-interface":[{"name":"a:vm"}]}`,
		"ietf-interfaces:interfaces/interface=a%3Avm": `{"ietf-interfaces:interface":[{"name":"a:vm","type":"iana-if-type:l2vlan"}]}`,
	} {
		s.want(404, "GET", "/restconf/data/"+path, "")
		s.want(200, "GET", "/restconf/ds/ietf-datastores:operational/"+path, "")
		s.do("PUT", "/restconf/data/"+path, body).refuses(t, 501, "operation-not-supported", "for what is plugged")
		if got := s.do("DELETE", "/restconf/data/"+path, ""); got.code < 400 {
			t.Errorf("DELETE %s: %d", path, got.code)
		}
	}
	s.want(404, "DELETE", "/restconf/data/pod:coe/pods="+uid, "")
	for _, all := range []string{"coelan:ports", "elan:elan-interfaces"} {
		s.want(204, "PUT", "/restconf/data/"+all, `{"`+all+`":{}}`)
	}
	if s.api.world.Ports[key] == nil {
		t.Error("the Port was removed")
	}
}

// TestObjectsBothWays has an object that kubectl wrote: a MAC in other letters is the same.
func TestObjectsBothWays(t *testing.T) {
	s := newSite(t)
	key := types.NamespacedName{Namespace: "a", Name: "vm"}
	s.api.world.Ports[key] = &v1alpha1.Port{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "vm", Labels: map[string]string{"keep": "me"}},
		Spec:       v1alpha1.PortSpec{Network: "red", MAC: "0A:00:00:00:00:01"},
	}
	s.want(204, "PATCH", "/restconf/data/coelan:ports/port=a,vm", `{"coelan:port":[{"namespace":"a","name":"vm","node":"worker1"}]}`)
	if p := s.api.world.Ports[key]; p.Spec.MAC != "0A:00:00:00:00:01" || p.Spec.Node != "worker1" || p.Labels["keep"] != "me" {
		t.Errorf("%+v", p)
	}
	s.api.world.Put(mapping.Pools, &v1alpha1.LoadBalancerPool{ObjectMeta: metav1.ObjectMeta{Name: "busy"}, Status: v1alpha1.LoadBalancerPoolStatus{Assigned: 2}})
	s.do("DELETE", "/restconf/data/coelan:load-balancer-pools/load-balancer-pool=busy", "").refuses(t, 409, "in-use", "2 addresses")
	s.want(201, "PUT", "/restconf/data/coelan:security-groups/security-group=a,web", `{"coelan:security-group":[{"namespace":"a","name":"web"}]}`)
	s.want(204, "PATCH", "/restconf/data/coelan:ports/port=a,vm", `{"coelan:port":[{"namespace":"a","name":"vm","security-group":["web"]}]}`)
	s.do("DELETE", "/restconf/data/coelan:security-groups/security-group=a,web", "").refuses(t, 409, "in-use", "a/vm")
	// Another view of the same object.
	s.same(s.want(200, "GET", "/restconf/data/elan:elan-interfaces/elan-interface=a%3Avm", "").body,
		`{"elan:elan-interface":[{"name":"a:vm","elan-instance-name":"red","static-mac-entries":[{"mac-address":"0a:00:00:00:00:01"}]}]}`)
}

func TestObjectsBadInput(t *testing.T) {
	s := newSite(t)
	s.want(201, "PUT", "/restconf/data/coelan:networks/network=red", `{"coelan:network":[{"name":"red","subnet":[{"cidr":"10.10.0.0/16"}]}]}`)
	before := len(s.api.world.Networks)
	for _, test := range []struct {
		name, method, path, body string
		code                     int
		tag, says                string
	}{
		{"wrong type", "PATCH", "networks/network=red", `{"coelan:network":[{"name":"red","mtu":"many"}]}`, 400, "invalid-value", "network[name='red']/mtu"},
		{"out of range", "PATCH", "networks/network=red", `{"coelan:network":[{"name":"red","mtu":1000}]}`, 400, "invalid-value", "network[name='red']"},
		{"unknown value", "PATCH", "networks/network=red", `{"coelan:network":[{"name":"red","type":"vxlan"}]}`, 400, "invalid-value", "vxlan"},
		{"the value of kubectl", "PATCH", "networks/network=red", `{"coelan:network":[{"name":"red","type":"Overlay"}]}`, 400, "invalid-value", "Overlay"},
		{"unknown node", "PATCH", "networks/network=red", `{"coelan:network":[{"name":"red","subnets":[]}]}`, 400, "unknown-element", "subnets"},
		{"no key", "POST", "networks", `{"coelan:network":[{"type":"overlay"}]}`, 400, "missing-element", "network/name"},
		{"half a key", "POST", "ports", `{"coelan:port":[{"name":"vm","network":"red"}]}`, 400, "missing-element", "port/namespace"},
		{"half a key in the path", "GET", "ports/port=vm", "", 400, "invalid-value", "namespace, name"},
		{"mandatory node", "POST", "ports", `{"coelan:port":[{"namespace":"a","name":"vm"}]}`, 400, "missing-element", "port[namespace='a'][name='vm']/network"},
		{"mandatory node of a list", "PATCH", "networks/network=red", `{"coelan:network":[{"name":"red","subnet":[{"cidr":"10.10.0.0/16","range":[{"from":"10.10.0.1"}]}]}]}`, 400, "missing-element", "range/to"},
		{"duplicate", "POST", "networks", `{"coelan:network":[{"name":"red"}]}`, 409, "data-exists", "red"},
		{"twice in one body", "PATCH", "networks/network=red", `{"coelan:network":[{"name":"red","subnet":[{"cidr":"10.10.0.0/16"},{"cidr":"10.10.0.0/16"}]}]}`, 400, "invalid-value", "two entries"},
		{"no prefix", "POST", "networks", `{"coelan:network":[{"name":"blue","subnet":[{"cidr":"10.10.0.5/16"}]}]}`, 400, "invalid-value", "subnet/cidr"},
		{"a key with a slash", "PUT", "ports/port=a%2Fb,vm", `{"coelan:port":[{"namespace":"a/b","name":"vm","network":"red"}]}`, 400, "invalid-value", "port"},
		{"a key with a space", "PUT", "networks/network=a%20b", `{"coelan:network":[{"name":"a b"}]}`, 400, "invalid-value", "network"},
		{"out of the folder", "PUT", "networks/network=..%2F..", `{"coelan:network":[{"name":"../.."}]}`, 400, "invalid-value", "network"},
		{"another key in the body", "PUT", "networks/network=blue", `{"coelan:network":[{"name":"green"}]}`, 400, "invalid-value", "key in the body"},
		{"state", "PATCH", "networks/network=red", `{"coelan:network":[{"name":"red","status":{"vni":7}}]}`, 400, "invalid-value", "status"},
		{"a pod's", "POST", "ports", `{"coelan:port":[{"namespace":"a","name":"vm","network":"red","pod":{"name":"x"}}]}`, 400, "invalid-value", "pod"},
		{"read only", "POST", "address-blocks", `{"coelan:address-block":[{"name":"a"}]}`, 405, "operation-not-supported", "address-blocks"},
		{"no such entry", "DELETE", "egresses/egress=none", "", 404, "invalid-value", "egress"},
		{"no such entry to merge", "PATCH", "egresses/egress=none", `{"coelan:egress":[{"name":"none","network":"a"}]}`, 404, "invalid-value", "egress"},
		{"too many", "POST", "load-balancer-pools", `{"coelan:load-balancer-pool":[{"name":"a","address":[` + strings.Repeat(`"192.0.2.0/32",`, 40) + `"192.0.2.1/32"]}]}`, 400, "invalid-value", "address"},
	} {
		t.Run(test.name, func(t *testing.T) {
			(&site{T: t, api: s.api, h: s.h}).do(test.method, "/restconf/data/coelan:"+test.path, test.body).refuses(t, test.code, test.tag, test.says)
			if len(s.api.world.Networks) != before || len(s.api.world.Ports) != 0 {
				t.Error("something was written")
			}
		})
	}
}

// TestObjectsRights has a client with rights in one namespace.
func TestObjectsRights(t *testing.T) {
	s := newSite(t)
	for _, namespace := range []string{"a", "b"} {
		s.api.world.Put(mapping.Groups, &v1alpha1.SecurityGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}})
	}
	got := s.as("securitygroups-a", "GET", "/restconf/data/coelan:security-groups", "")
	s.same(got.body, `{"coelan:security-groups":{"security-group":[{"namespace":"a","name":"web"}]}}`)
	if got := s.as("securitygroups-a", "DELETE", "/restconf/data/coelan:security-groups/security-group=a,web", ""); got.code != 204 {
		t.Errorf("%+v", got)
	}
	s.as("securitygroups-a", "DELETE", "/restconf/data/coelan:security-groups/security-group=b,web", "").refuses(t, 403, "access-denied", "delete securitygroups b/web")
	s.as("securitygroups-a", "PUT", "/restconf/data/coelan:egresses/egress=a", `{"coelan:egress":[{"name":"a","network":"n"}]}`).refuses(t, 403, "access-denied", "create egresses")
	if all := s.api.world.Objects[mapping.Groups]; len(all) != 1 || all[client.ObjectKey{Namespace: "b", Name: "web"}] == nil {
		t.Errorf("%v", all)
	}
}
