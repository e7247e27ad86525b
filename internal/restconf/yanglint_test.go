// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
)

// TestYanglint has another implementation of YANG read the answers about all data.
func TestYanglint(t *testing.T) {
	if _, err := exec.LookPath("yanglint"); err != nil {
		t.Skip("yanglint is not installed: make deps")
	}
	s := newSite(t)
	s.want(204, "PATCH", "/restconf/data", `{"ietf-restconf:data":{
		"elan:elan-instances":{"elan-instance":[{"elan-instance-name":"red","segmentation-id":70010,"description":"a tenant"},
			{"elan-instance-name":"office","segment-type":"elan:segment-type-vlan","segmentation-id":7,"physical-network-name":"p","external":true}]},
		"dhcp_allocation_pool:dhcp_allocation_pool":{"network":[{"network-id":"red","allocation-pool":[{"subnet":"10.10.0.0/16","dns-servers":["10.10.0.53"]},{"subnet":"fd00:10::/64"}]}]},
		"l3vpn:vpn-instances":{"vpn-instance":[{"vpn-instance-name":"red","ipv6-family":{"route-distinguisher":["64512:7"],"vpnTargets":{"vpnTarget":[{"vrfRTValue":"64512:100","vrfRTType":"both"}]}}}]},
		"elan:elan-interfaces":{"elan-interface":[{"name":"a:vm","elan-instance-name":"red","static-mac-entries":[{"mac-address":"0A:00:00:00:00:01","ip-prefix":"10.10.0.9"}]}]}}}`)
	s.want(204, "POST", "/restconf/config/pod:coe", samplePod)
	s.want(204, "PATCH", "/restconf/data/l3vpn:vpn-interfaces/vpn-interface=a%3Avm", `{"l3vpn:vpn-interface":[{"name":"a:vm","odl-l3vpn:adjacency":[
		{"ip_address":"192.0.2.0/24","adjacency_type":"extra-route","subnet_id":"`+policyUUID+`"}]}]}`)
	s.want(201, "PUT", policyPath+policyUUID, policyOf(`"network-NS":"shop","network-policy-spec":{"pod-selector":{"match-expressions":[{"key":"a","operator":"In","values":["b"]}]},
		"ingress":[{},{"network-policy-ingress-rule":{"from":[{"network-policy-peer":{"peer-namespace-selector":{}}},{"network-policy-peer":{"ip-block":{"cidr":"10.0.0.0/8"}}}],
			"ingress-ports":[{"network-policy-port":{"port":"80","end-port":90}}]}}]}`))
	s.api.world.Namespaces["kube-system"] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{UID: "00000000-2222-3333-4444-555555555555"}}
	s.api.world.Routers["red"].Status.VNI = 70011
	for _, o := range wholeObjects {
		if got := s.do("PUT", o.path(), o.message()); got.code >= 300 {
			t.Fatalf("%s: %+v", o.key, got)
		}
	}
	at := metav1.Now()
	conditions := []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, ObservedGeneration: 1, LastTransitionTime: at}}
	s.api.world.Networks["wan"].Status = v1alpha1.NetworkStatus{ID: 2, AddressesFree: 1 << 40, Subnets: []string{"203.0.113.0/24"}, Conditions: conditions}
	port := s.api.world.Ports[types.NamespacedName{Namespace: "default", Name: "vm1"}]
	port.Status = v1alpha1.PortStatus{Phase: v1alpha1.PortBound, BoundTime: &at, Lease: &v1alpha1.PortLease{HostName: "vm", RenewTime: &at}, Conditions: conditions}
	for _, m := range models {
		all := ""
		for name, l := range newDatastore(nil, s.api, nil).lists {
			if node := newDatastore(nil, s.api, nil).schema.Children[name]; node.Module != m.name || l == nil {
				continue
			}
			answer := s.want(200, "GET", "/restconf/data/"+m.name+":"+name, "").body
			all += answer
			file := filepath.Join(t.TempDir(), "answer.json")
			if err := os.WriteFile(file, []byte(answer), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "yanglint", "-p", "../../yang", "-t", "data", "../../yang/"+m.name+".yang", "../../yang/odl-l3vpn.yang", "../../yang/odl-interface.yang", "../../yang/iana-if-type.yang", file)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s\n%s", name, err, out, answer)
			}
		}
		// Those of OpenDaylight augment others.
		if !strings.Contains(all, "{") && !strings.HasPrefix(m.name, "odl-") {
			t.Errorf("%s has no data", m.name)
		}
	}
}
