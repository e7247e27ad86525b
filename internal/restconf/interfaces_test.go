// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
)

const interfacesPath = "/restconf/data/ietf-interfaces:interfaces"

func withInterfaces(t *testing.T) *site {
	s := withVPN(t)
	n := &corev1.Node{ObjectMeta: serviceMeta("", "worker1", selectedUID)}
	n.Annotations = map[string]string{v1alpha1.AnnotationPhysicalNetworks: "office"}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.33.12"}}
	s.api.world.Nodes["worker1"] = n
	s.api.world.Nodes["worker2"] = &corev1.Node{ObjectMeta: serviceMeta("", "worker2", plainUID)}
	bound := s.api.world.Ports[types.NamespacedName{Namespace: "a", Name: "pod"}]
	bound.Status = v1alpha1.PortStatus{Phase: v1alpha1.PortBound, MAC: "0A:00:00:00:00:02"}
	return s
}

// TestBadInterfaces sends what Ports cannot be.
func TestBadInterfaces(t *testing.T) {
	to := func(name string) string { return interfacesPath + "/interface=" + name }
	entry := func(name, text string) string {
		return `{"ietf-interfaces:interface":[{"name":"` + name + `"` + text + `}]}`
	}
	const port = `,"type":"iana-if-type:l2vlan"`
	for name, c := range map[string]struct {
		method, path, body string
		code               int
		tag, says          string
	}{
		"no type":         {"PUT", to("a%3Avm2"), entry("a:vm2", ``), 400, "missing-element", "type"},
		"unknown type":    {"PUT", to("a%3Avm"), entry("a:vm", `,"type":"iana-if-type:ethernetCsmacd"`), 400, "invalid-value", "interface"},
		"tunnel":          {"PUT", to("tun1"), entry("tun1", `,"type":"iana-if-type:tunnel","odl-interface:tunnel-source":"192.0.2.1"`), 501, "operation-not-supported", "agents make tunnels"},
		"tunnel of Port":  {"PUT", to("a%3Avm"), entry("a:vm", port+`,"odl-interface:tunnel-source":"192.0.2.1"`), 501, "operation-not-supported", "tunnel-source"},
		"no namespace":    {"PUT", to("vm"), entry("vm", port), 400, "invalid-value", "NAMESPACE:NAME"},
		"slash":           {"PUT", to("a%3Ab%2Fc"), entry("a:b/c", port), 400, "invalid-value", "no name of an object"},
		"no Port":         {"PUT", to("a%3Anone"), entry("a:none", port), 400, "invalid-value", "make it first"},
		"a pod's":         {"PUT", to("a%3Apod"), entry("a:pod", port), 501, "operation-not-supported", "for what is plugged"},
		"switched off":    {"PUT", to("a%3Avm"), entry("a:vm", port+`,"enabled":false`), 501, "operation-not-supported", "enabled"},
		"another mode":    {"PUT", to("a%3Avm"), entry("a:vm", port+`,"odl-interface:l2vlan-mode":"access"`), 501, "operation-not-supported", "l2vlan-mode"},
		"no mode":         {"PUT", to("a%3Avm"), entry("a:vm", port+`,"odl-interface:l2vlan-mode":"x"`), 400, "invalid-value", "interface"},
		"external":        {"PUT", to("a%3Avm"), entry("a:vm", port+`,"odl-interface:external":true`), 501, "operation-not-supported", "external"},
		"foreign module":  {"PUT", to("a%3Avm"), entry("a:vm", port+`,"ietf-interfaces:l2vlan-mode":"trunk"`), 400, "unknown-element", "l2vlan-mode"},
		"VLAN":            {"PUT", to("a%3Avm"), entry("a:vm", port+`,"odl-interface:vlan-id":7`), 400, "unknown-element", "vlan-id"},
		"removed":         {"DELETE", to("a%3Avm"), ``, 501, "operation-not-supported", "delete elan-interface a:vm"},
		"state":           {"PUT", "/restconf/data/ietf-interfaces:interfaces-state", `{"ietf-interfaces:interfaces-state":{}}`, 405, "operation-not-supported", "PUT"},
		"state, an entry": {"DELETE", "/restconf/data/ietf-interfaces:interfaces-state/interface=a%3Avm", ``, 405, "operation-not-supported", "DELETE"},
		"state, in a body": {
			"PATCH", "/restconf/data", `{"ietf-restconf:data":{"ietf-interfaces:interfaces-state":{"interface":[{"name":"a"}]}}}`, 400, "invalid-value", "is state",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := withInterfaces(t)
			s.do(c.method, c.path, c.body).refuses(t, c.code, c.tag, c.says)
			if s.api.version != 0 {
				t.Error("something was written")
			}
		})
	}
}

// TestInterfaces has an interface as COE writes it for a pod, and those that there are.
func TestInterfaces(t *testing.T) {
	s := withInterfaces(t)
	body := `{"ietf-interfaces:interface":[{"name":"a:vm","description":"a machine","type":"iana-if-type:l2vlan","enabled":true,"odl-interface:l2vlan-mode":"trunk"}]}`
	for range 2 {
		s.want(204, "PUT", interfacesPath+"/interface=a%3Avm", body)
	}
	s.same(s.want(200, "GET", interfacesPath+"/interface=a%3Avm", "").body, body)
	s.want(200, "PUT", "/restconf/config/ietf-interfaces:interfaces/interface/a:vm", body)
	if s.api.version != 1 {
		t.Errorf("%d writes", s.api.version)
	}
	// Ports are there whatever a client replaces.
	s.want(204, "PUT", interfacesPath, `{"ietf-interfaces:interfaces":{}}`)
	const operational = "/restconf/ds/ietf-datastores:operational/ietf-interfaces:interfaces/interface="
	s.same(s.want(200, "GET", operational+"tunnel%2Fworker1", "").body,
		`{"ietf-interfaces:interface":[{"name":"tunnel/worker1","type":"iana-if-type:tunnel","enabled":true,"odl-interface:tunnel-source":"192.168.33.12"}]}`)
	s.same(s.want(200, "GET", operational+"trunk%2Fworker1%2Foffice", "").body,
		`{"ietf-interfaces:interface":[{"name":"trunk/worker1/office","type":"iana-if-type:l2vlan","enabled":true,"odl-interface:l2vlan-mode":"trunk","odl-interface:external":true}]}`)
	s.want(200, "GET", operational+"a%3Apod", "")
	s.want(404, "GET", operational+"tunnel%2Fworker2", "") // it has no address
	const state = "/restconf/data/ietf-interfaces:interfaces-state/interface="
	for name, want := range map[string]string{
		"a:pod":          `"type":"iana-if-type:l2vlan","admin-status":"up","oper-status":"up","phys-address":"0a:00:00:00:00:02"`,
		"a:vm":           `"type":"iana-if-type:l2vlan","admin-status":"up","oper-status":"down","phys-address":"0a:00:00:00:00:01"`,
		"tunnel/worker1": `"type":"iana-if-type:tunnel","admin-status":"up","oper-status":"unknown"`,
	} {
		path := map[string]string{"a:pod": "a%3Apod", "a:vm": "a%3Avm", "tunnel/worker1": "tunnel%2Fworker1"}[name]
		s.same(s.want(200, "GET", state+path, "").body, `{"ietf-interfaces:interface":[{"name":"`+name+`",`+want+`}]}`)
	}
}
