// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
)

const vpnInterfacesPath = "/restconf/data/l3vpn:vpn-interfaces"

// withVPN is a site with a Port in the Router red, which has routes by way of others.
func withVPN(t *testing.T) *site {
	s := newSite(t)
	for _, n := range []*v1alpha1.Network{
		{Spec: v1alpha1.NetworkSpec{Type: v1alpha1.Overlay, Router: "red", Subnets: []v1alpha1.Subnet{{CIDR: "10.10.0.0/16"}, {CIDR: "fd00:10::/64", Gateway: "fd00:10::fe"}}}},
		{Spec: v1alpha1.NetworkSpec{Type: v1alpha1.Overlay}},
	} {
		n.Name = map[bool]string{true: "lan", false: "alone"}[n.Spec.Router != ""]
		s.api.world.Networks[n.Name] = n
	}
	r := &v1alpha1.Router{Spec: v1alpha1.RouterSpec{Routes: []v1alpha1.Route{{Destination: "192.0.2.0/24", NextHop: "10.10.0.77"}}}}
	r.Name = "red"
	s.api.world.Routers["red"] = r
	for name, p := range map[string]v1alpha1.PortSpec{
		"vm":    {Network: "lan", MAC: "0A:00:00:00:00:01", Addresses: []string{"10.10.0.9", "fd00:10::9"}},
		"four":  {Network: "lan", Addresses: []string{"10.10.0.8"}},
		"alone": {Network: "alone", Addresses: []string{"10.11.0.9"}},
		"pod":   {Network: "lan", Pod: &v1alpha1.PortPod{Name: "web"}},
	} {
		port := &v1alpha1.Port{ObjectMeta: serviceMeta("a", name, ""), Spec: p}
		s.api.world.Ports[types.NamespacedName{Namespace: "a", Name: name}] = port
	}
	return s
}

func vpnInterfaceOf(name, text string) string {
	return `{"l3vpn:vpn-interface":[{"name":"` + name + `",` + text + `}]}`
}

func adjacencyOf(text string) string {
	return vpnInterfaceOf("a:vm", `"odl-l3vpn:adjacency":[{`+text+`}]`)
}

// TestBadVPNInterfaces sends what Ports and Routers cannot be.
func TestBadVPNInterfaces(t *testing.T) {
	to := func(name string) string { return vpnInterfacesPath + "/vpn-interface=a%3A" + name }
	route := func(text string) string { return adjacencyOf(`"adjacency_type":"extra-route",` + text) }
	primary := func(text string) string { return adjacencyOf(`"adjacency_type":"primary-adjacency",` + text) }
	for name, c := range map[string]struct {
		method, path, body string
		code               int
		tag, says          string
	}{
		"no namespace":              {"PUT", vpnInterfacesPath + "/vpn-interface=vm", `{"l3vpn:vpn-interface":[{"name":"vm"}]}`, 400, "invalid-value", "NAMESPACE:NAME"},
		"name with a slash":         {"PUT", vpnInterfacesPath + "/vpn-interface=a%3Ab%2Fc", `{"l3vpn:vpn-interface":[{"name":"a:b/c"}]}`, 400, "invalid-value", "no name of an object"},
		"name with a space":         {"PUT", vpnInterfacesPath + "/vpn-interface=a%3Ab%20c", `{"l3vpn:vpn-interface":[{"name":"a:b c"}]}`, 400, "invalid-value", "no name of an object"},
		"no Port":                   {"PUT", to("none"), `{"l3vpn:vpn-interface":[{"name":"a:none"}]}`, 400, "invalid-value", "there is no Port a/none: make it first"},
		"a pod's":                   {"PUT", to("pod"), `{"l3vpn:vpn-interface":[{"name":"a:pod"}]}`, 501, "operation-not-supported", "for what is plugged"},
		"unknown node":              {"PUT", to("vm"), vpnInterfaceOf("a:vm", `"color":"red"`), 400, "unknown-element", "color"},
		"a Router's own":            {"PUT", to("vm"), vpnInterfaceOf("a:vm", `"router-interface":true`), 501, "operation-not-supported", "router-interface"},
		"two instances":             {"PUT", to("vm"), vpnInterfaceOf("a:vm", `"vpn-instance-names":[{"vpn-name":"red"},{"vpn-name":"blue"}]`), 501, "operation-not-supported", "one Router"},
		"another instance":          {"PUT", to("vm"), vpnInterfaceOf("a:vm", `"vpn-instance-names":[{"vpn-name":"blue"}]`), 400, "invalid-value", "Network lan, which is in the Router red"},
		"instance without key":      {"PUT", to("vm"), vpnInterfaceOf("a:vm", `"vpn-instance-names":[{"associated-subnet-type":"V4Subnet"}]`), 400, "missing-element", "vpn-name"},
		"another family":            {"PUT", to("four"), vpnInterfaceOf("a:four", `"vpn-instance-names":[{"vpn-name":"red","associated-subnet-type":"V6Subnet"}]`), 400, "invalid-value", "associated-subnet-type"},
		"no type":                   {"PUT", to("vm"), adjacencyOf(`"ip_address":"10.10.0.9/32"`), 400, "missing-element", "adjacency_type"},
		"unknown type":              {"PUT", to("vm"), adjacencyOf(`"ip_address":"10.10.0.9/32","adjacency_type":"static"`), 400, "invalid-value", "vpn-interface"},
		"learnt":                    {"PUT", to("vm"), adjacencyOf(`"ip_address":"10.10.0.9/32","adjacency_type":"learnt-ip"`), 501, "operation-not-supported", "not learnt"},
		"no prefix":                 {"PUT", to("vm"), primary(`"ip_address":"10.10.0.9"`), 400, "invalid-value", "no prefix"},
		"another address":           {"PUT", to("vm"), primary(`"ip_address":"10.10.0.10/32"`), 400, "invalid-value", "cannot be changed"},
		"a subnet as address":       {"PUT", to("vm"), primary(`"ip_address":"10.10.0.0/16"`), 400, "invalid-value", "is no address"},
		"another MAC":               {"PUT", to("vm"), primary(`"ip_address":"10.10.0.9/32","mac_address":"0a:00:00:00:00:02"`), 400, "invalid-value", "mac_address"},
		"another gateway":           {"PUT", to("vm"), primary(`"ip_address":"10.10.0.9/32","subnet_gateway_ip":"10.10.0.2"`), 400, "invalid-value", "gateway is 10.10.0.1"},
		"address with a next hop":   {"PUT", to("vm"), primary(`"ip_address":"10.10.0.9/32","next-hop-ip-list":["10.10.0.8"]`), 400, "invalid-value", "is for extra-route"},
		"two next hops":             {"PUT", to("vm"), route(`"ip_address":"198.51.100.0/24","next-hop-ip-list":["10.10.0.9","10.10.0.8"]`), 501, "operation-not-supported", "one next hop"},
		"next hop of another":       {"PUT", to("vm"), route(`"ip_address":"198.51.100.0/24","next-hop-ip-list":["10.10.0.8"]`), 400, "invalid-value", "no address of the Port a/vm"},
		"next hop of other family":  {"PUT", to("vm"), route(`"ip_address":"198.51.100.0/24","next-hop-ip-list":["fd00:10::9"]`), 400, "invalid-value", "another family"},
		"no next hop of the family": {"PUT", to("four"), vpnInterfaceOf("a:four", `"odl-l3vpn:adjacency":[{"ip_address":"2001:db8::/64","adjacency_type":"extra-route"}]`), 400, "invalid-value", "no address of the prefix's family"},
		"route by way of another":   {"PUT", to("vm"), route(`"ip_address":"192.0.2.0/24"`), 409, "data-exists", "by way of 10.10.0.77"},
		"no Router":                 {"PUT", to("alone"), vpnInterfaceOf("a:alone", `"odl-l3vpn:adjacency":[{"ip_address":"198.51.100.0/24","adjacency_type":"extra-route"}]`), 400, "invalid-value", "make it first, as vpn-instance"},
		"removed":                   {"DELETE", to("vm"), ``, 501, "operation-not-supported", "as long as the Port is"},
		"removed, not there":        {"DELETE", to("none"), ``, 404, "invalid-value", "a:none"},
	} {
		t.Run(name, func(t *testing.T) {
			s := withVPN(t)
			s.do(c.method, c.path, c.body).refuses(t, c.code, c.tag, c.says)
			if s.api.version != 0 {
				t.Error("something was written")
			}
		})
	}
}

// TestVPNInterface has extra routes of a Port, as Netvirt's clients write them for a gateway.
func TestVPNInterface(t *testing.T) {
	s := withVPN(t)
	const path = vpnInterfacesPath + "/vpn-interface=a%3Avm"
	body := vpnInterfaceOf("a:vm", `"router-interface":false,"vpn-instance-names":[{"vpn-name":"red","associated-subnet-type":"V4AndV6Subnets"}],"odl-l3vpn:adjacency":[
		{"ip_address":"10.10.0.9/32","adjacency_type":"primary-adjacency","mac_address":"0A:00:00:00:00:01","subnet_id":"`+policyUUID+`","subnet_gateway_ip":"10.10.0.1"},
		{"ip_address":"198.51.100.0/24","adjacency_type":"extra-route","next-hop-ip-list":["10.10.0.9"]}]`)
	for range 2 {
		s.want(204, "PUT", path, body)
	}
	hops := func() (list []string) {
		for _, r := range s.api.world.Routers["red"].Spec.Routes {
			list = append(list, r.Destination+" by "+r.NextHop)
		}
		return list
	}
	if got := hops(); !slices.Equal(got, []string{"192.0.2.0/24 by 10.10.0.77", "198.51.100.0/24 by 10.10.0.9"}) || s.api.version != 2 {
		t.Errorf("%d writes, routes %q", s.api.version, got)
	}
	s.same(s.want(200, "GET", path, "").body, `{"l3vpn:vpn-interface":[{"name":"a:vm","vpn-instance-names":[{"vpn-name":"red","associated-subnet-type":"V4AndV6Subnets"}],"odl-l3vpn:adjacency":[
		{"ip_address":"10.10.0.9/32","adjacency_type":"primary-adjacency","mac_address":"0a:00:00:00:00:01","subnet_id":"`+policyUUID+`","subnet_gateway_ip":"10.10.0.1"},
		{"ip_address":"198.51.100.0/24","adjacency_type":"extra-route","next-hop-ip-list":["10.10.0.9"]},
		{"ip_address":"fd00:10::9/128","adjacency_type":"primary-adjacency","mac_address":"0a:00:00:00:00:01","subnet_gateway_ip":"fd00:10::fe"}]}]}`)
	if got := s.want(200, "GET", "/restconf/operational/l3vpn:vpn-interfaces", "").body; !strings.Contains(got, `"a:pod"`) {
		t.Error(got)
	}
	for _, used := range []string{"elan:elan-interfaces/elan-interface=a%3Avm"} {
		s.do("DELETE", "/restconf/data/"+used, "").refuses(t, 409, "in-use", "a route for 198.51.100.0/24")
	}
	s.want(201, "POST", path, `{"odl-l3vpn:adjacency":[{"ip_address":"2001:db8::/64","adjacency_type":"extra-route"}]}`)
	s.want(204, "DELETE", path+"/odl-l3vpn:adjacency=198.51.100.0%2F24", "")
	if got := hops(); !slices.Equal(got, []string{"192.0.2.0/24 by 10.10.0.77", "2001:db8::/64 by fd00:10::9"}) {
		t.Errorf("routes %q", got)
	}
	s.want(204, "PUT", vpnInterfacesPath, `{"l3vpn:vpn-interfaces":{"vpn-interface":[{"name":"a:vm"}]}}`)
	if got := hops(); len(got) != 1 || len(s.api.world.Ports) != 4 {
		t.Errorf("routes %q, %d Ports", got, len(s.api.world.Ports))
	}
	s.want(204, "DELETE", "/restconf/data/elan:elan-interfaces/elan-interface=a%3Avm", "")
}
