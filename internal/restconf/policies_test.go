// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	policiesPath = "/restconf/data/k8s:k8s/network-policies"
	policyPath   = policiesPath + "/network-policy="
	policyUUID   = "88888888-2222-3333-4444-555555555555"
)

func policyOf(text string) string {
	return `{"k8s:network-policy":[{"uuid":"` + policyUUID + `",` + text + `}]}`
}

// ingressOf is a policy with one rule.
func ingressOf(rule string) string {
	return policyOf(`"network-policy-spec":{"ingress":[{"network-policy-ingress-rule":{` + rule + `}}]}`)
}

// TestBadPolicies sends what is wrong with policies.
func TestBadPolicies(t *testing.T) {
	from := func(peer string) string { return ingressOf(`"from":[{"network-policy-peer":{` + peer + `}}]`) }
	port := func(text string) string {
		return ingressOf(`"ingress-ports":[{"network-policy-port":{` + text + `}}]`)
	}
	const to = policyPath + policyUUID
	for name, c := range map[string]struct {
		method, path, body string
		code               int
		tag, says          string
	}{
		"without its module":       {"PUT", to, `{"network-policy":[{}]}`, 400, "missing-element", "uuid"},
		"no uuid":                  {"PUT", policyPath + "a%2Fb", `{"k8s:network-policy":[{"uuid":"a/b"}]}`, 400, "invalid-value", "network-policy"},
		"unknown node":             {"PUT", to, policyOf(`"color":"red"`), 400, "unknown-element", "color"},
		"rule is an object":        {"PUT", to, policyOf(`"network-policy-spec":{"ingress":{}}`), 400, "invalid-value", "is a list"},
		"rule of the other kind":   {"PUT", to, policyOf(`"network-policy-spec":{"egress":[{"network-policy-ingress-rule":{}}]}`), 400, "unknown-element", "network-policy-ingress-rule"},
		"position twice":           {"PUT", to, policyOf(`"network-policy-spec":{"ingress":[{"position":1},{}]}`), 400, "invalid-value", "two entries"},
		"position no number":       {"PUT", to, policyOf(`"network-policy-spec":{"ingress":[{"position":"first"}]}`), 400, "invalid-value", "position"},
		"unknown type":             {"PUT", to, policyOf(`"network-policy-spec":{"policy-types":["both"]}`), 400, "invalid-value", "network-policy"},
		"type twice":               {"PUT", to, policyOf(`"network-policy-spec":{"policy-types":["egress","egress"]}`), 400, "invalid-value", "twice"},
		"label without key":        {"PUT", to, policyOf(`"network-policy-spec":{"pod-selector":{"match-labels":[{"value":"b"}]}}`), 400, "missing-element", "key"},
		"label twice":              {"PUT", to, policyOf(`"network-policy-spec":{"pod-selector":{"match-labels":[{"key":"a"},{"key":"a"}]}}`), 400, "invalid-value", "two entries"},
		"labels as in Kubernetes":  {"PUT", to, policyOf(`"network-policy-spec":{"pod-selector":{"match-labels":{"a":"b"}}}`), 400, "invalid-value", "is a list"},
		"expression without one":   {"PUT", to, policyOf(`"network-policy-spec":{"pod-selector":{"match-expressions":[{"key":"a"}]}}`), 400, "missing-element", "operator"},
		"unknown operator":         {"PUT", to, policyOf(`"network-policy-spec":{"pod-selector":{"match-expressions":[{"key":"a","operator":"Like"}]}}`), 400, "invalid-value", "network-policy"},
		"peer without anything":    {"PUT", to, from(``), 400, "missing-element", "from[position='0']/network-policy-peer"},
		"peer of two kinds":        {"PUT", to, from(`"peer-pod-selector":{},"ip-block":{"cidr":"10.0.0.0/8"}`), 400, "invalid-value", "addresses or pods"},
		"block without prefix":     {"PUT", to, from(`"ip-block":{}`), 400, "missing-element", "cidr"},
		"no prefix":                {"PUT", to, from(`"ip-block":{"cidr":"10.0.0.0"}`), 400, "invalid-value", "ip-block/cidr"},
		"exception is no prefix":   {"PUT", to, from(`"ip-block":{"cidr":"10.0.0.0/8","except":["x"]}`), 400, "invalid-value", "ip-block/except"},
		"exception outside":        {"PUT", to, from(`"ip-block":{"cidr":"10.0.0.0/8","except":["11.0.0.0/9"]}`), 400, "invalid-value", "no part of"},
		"exception is all":         {"PUT", to, from(`"ip-block":{"cidr":"10.0.0.0/8","except":["10.0.0.0/8"]}`), 400, "invalid-value", "no part of"},
		"unknown protocol":         {"PUT", to, port(`"protocol":"ICMP"`), 400, "invalid-value", "network-policy"},
		"port too large":           {"PUT", to, port(`"port":"65536"`), 400, "invalid-value", "65535"},
		"port 0":                   {"PUT", to, port(`"port":"0"`), 400, "invalid-value", "65535"},
		"port is a number in JSON": {"PUT", to, port(`"port":80`), 400, "invalid-value", "is no string"},
		"range without a port":     {"PUT", to, port(`"end-port":9`), 400, "invalid-value", "end-port"},
		"range of a name":          {"PUT", to, port(`"port":"http","end-port":9`), 400, "invalid-value", "end-port"},
		"range backwards":          {"PUT", to, port(`"port":"10","end-port":9`), 400, "invalid-value", "before"},
		"no name":                  {"PUT", to, policyOf(`"name":"A b"`), 400, "invalid-value", "/name"},
		"no namespace":             {"PUT", to, policyOf(`"network-NS":"../x"`), 400, "invalid-value", "network-NS"},
		"name of another":          {"PUT", to, policyOf(`"name":"closed","network-NS":"shop"`), 409, "data-exists", plainUID},
		"there already":            {"POST", policiesPath, strings.ReplaceAll(policyOf(`"name":"b"`), policyUUID, plainUID), 409, "data-exists", plainUID},
		"another name":             {"PUT", policyPath + plainUID, strings.ReplaceAll(policyOf(`"name":"open"`), policyUUID, plainUID), 400, "invalid-value", "shop/closed"},
		"another namespace":        {"PUT", policyPath + plainUID, strings.ReplaceAll(policyOf(`"network-NS":"b"`), policyUUID, plainUID), 400, "invalid-value", "shop/closed"},
		"absent":                   {"DELETE", to, ``, 404, "invalid-value", policyUUID},
		"absent rule":              {"GET", policyPath + plainUID + "/network-policy-spec/ingress=7", ``, 404, "invalid-value", "network-policy-spec"},
		"label with a slash":       {"GET", policyPath + plainUID + "/network-policy-spec/pod-selector/match-labels=a/b", ``, 404, "unknown-element", "/b"},
		"cluster that is unknown":  {"PUT", "/restconf/config/k8s-cluster:k8s-clusters-info/", `{"k8s-clusters-info":{"k8s-clusters":[{"cluster-id":"` + policyUUID + `"}]}}`, 501, "operation-not-supported", "is not this cluster"},
		"cluster, removed":         {"DELETE", "/restconf/data/k8s-cluster:k8s-clusters-info/k8s-clusters=" + selectedUID, ``, 501, "operation-not-supported", "cannot be removed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.api.world.Policies[types.NamespacedName{Namespace: "shop", Name: "closed"}] = &networkingv1.NetworkPolicy{ObjectMeta: serviceMeta("shop", "closed", plainUID)}
			s.api.world.Namespaces["kube-system"] = &corev1.Namespace{ObjectMeta: serviceMeta("", "kube-system", selectedUID)}
			s.do(c.method, c.path, c.body).refuses(t, c.code, c.tag, c.says)
			if s.api.version != 0 {
				t.Error("something was written")
			}
		})
	}
}

// TestPolicy writes a policy as clients of COE do, without positions, and reads it.
func TestPolicy(t *testing.T) {
	s := newSite(t)
	body := policyOf(`"name":"web","network-policy-spec":{"pod-selector":{"match-labels":[{"key":"app.kubernetes.io/name","value":"web"}]},
		"ingress":[{"network-policy-ingress-rule":{"ingress-ports":[{"network-policy-port":{"protocol":"TCP","port":"80"}},{"network-policy-port":{"protocol":"UDP","port":"dns"}}],
			"from":[{"network-policy-peer":{"peer-pod-selector":{},"peer-namespace-selector":{"match-labels":[{"key":"team","value":"a"}]}}},
				{"network-policy-peer":{"ip-block":{"cidr":"10.1.1.1/16","except":["10.1.2.0/24"]}}}]}}],"policy-types":["ingress"]}`)
	for range 2 {
		s.want(200, "PUT", "/restconf/config/k8s:k8s/network-policies/network-policy/"+policyUUID, body)
	}
	tcp, udp, http, dns := corev1.ProtocolTCP, corev1.ProtocolUDP, intstr.FromInt32(80), intstr.FromString("dns")
	want := networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "web"}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{
			Ports: []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &http}, {Protocol: &udp, Port: &dns}},
			From: []networkingv1.NetworkPolicyPeer{
				{PodSelector: &metav1.LabelSelector{}, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}},
				{IPBlock: &networkingv1.IPBlock{CIDR: "10.1.1.1/16", Except: []string{"10.1.2.0/24"}}},
			},
		}},
	}
	policy := func() *networkingv1.NetworkPolicy {
		t.Helper()
		p := s.api.world.Policies[types.NamespacedName{Namespace: "default", Name: "web"}]
		if p == nil {
			t.Fatalf("policies: %v", s.api.world.Policies)
		}
		return p
	}
	if diff := cmp.Diff(want, policy().Spec); diff != "" || policy().ResourceVersion != "01" {
		t.Errorf("version %s, (-want +got):\n%s", policy().ResourceVersion, diff)
	}
	spec := policyPath + policyUUID + "/network-policy-spec"
	s.same(s.want(200, "GET", spec+"/ingress=0/network-policy-ingress-rule/from=0", "").body,
		`{"k8s:from":[{"position":0,"network-policy-peer":{"peer-pod-selector":{},"peer-namespace-selector":{"match-labels":[{"key":"team","value":"a"}]}}}]}`)
	s.want(204, "PUT", spec+"/pod-selector/match-labels=app.kubernetes.io%2Fname/value", `{"k8s:value":"shop"}`)
	s.want(201, "POST", spec, `{"k8s:egress":[{}]}`)
	s.want(204, "PATCH", spec, `{"k8s:network-policy-spec":{"policy-types":["egress"],"ingress":[{"network-policy-ingress-rule":{"from":[{"network-policy-peer":{"peer-pod-selector":{}}}]}}]}}`)
	want.PodSelector.MatchLabels["app.kubernetes.io/name"] = "shop"
	want.Egress = []networkingv1.NetworkPolicyEgressRule{{}}
	want.PolicyTypes = append(want.PolicyTypes, networkingv1.PolicyTypeEgress)
	want.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}}
	if diff := cmp.Diff(want, policy().Spec); diff != "" {
		t.Errorf("after edits (-want +got):\n%s", diff)
	}
	s.want(204, "DELETE", spec+"/ingress=0", "")
	if len(policy().Spec.Ingress) != 0 {
		t.Errorf("ingress: %+v", policy().Spec.Ingress)
	}
	s.want(204, "DELETE", policyPath+policyUUID, "")
	s.same(s.want(200, "GET", policiesPath, "").body, `{"k8s:network-policies":{}}`)
	s.same(s.want(200, "GET", "/restconf/data/k8s:k8s", "").body, `{"k8s:k8s":{"network-policies":{}}}`)
	s.want(201, "POST", "/restconf/data/k8s:k8s", `{"k8s:network-policies":{"network-policy":[{"uuid":"`+policyUUID+`"}]}}`)
	closed := s.api.world.Policies[types.NamespacedName{Namespace: "default", Name: "policy-" + policyUUID}]
	if closed == nil || len(closed.Spec.PolicyTypes) != 1 {
		t.Errorf("%+v", closed)
	}
}

// TestWhoMayReadPolicies shows each client the policies of its namespaces.
func TestWhoMayReadPolicies(t *testing.T) {
	s := newSite(t)
	if got := s.as("ports-a", "GET", policiesPath, ""); got.code != 403 {
		t.Errorf("%+v", got)
	}
	if got := s.as("reader", "PUT", policyPath+policyUUID, ingressOf("")); got.code != 403 || !strings.Contains(got.body, "may not create networkpolicies default/policy-"+policyUUID) {
		t.Errorf("%+v", got)
	}
	for _, namespace := range []string{"a", "b"} {
		uuid := map[string]string{"a": policyUUID, "b": plainUID}[namespace]
		s.want(201, "PUT", policyPath+uuid, strings.ReplaceAll(policyOf(`"network-NS":"`+namespace+`"`), policyUUID, uuid))
	}
	if got := s.as("networkpolicies-a", "GET", policiesPath, ""); got.code != 200 || !strings.Contains(got.body, policyUUID) || strings.Contains(got.body, plainUID) {
		t.Errorf("%+v", got)
	}
	if got := s.as("networkpolicies-a", "DELETE", policyPath+plainUID, ""); got.code != 403 || len(s.api.world.Policies) != 2 {
		t.Errorf("%+v", got)
	}
	if got := s.as("networkpolicies-a", "DELETE", policyPath+policyUUID, ""); got.code != 204 || len(s.api.world.Policies) != 1 {
		t.Errorf("%+v", got)
	}
	s.api.world.Namespaces["kube-system"] = &corev1.Namespace{ObjectMeta: serviceMeta("", "kube-system", selectedUID)}
	const clusters = "/restconf/data/k8s-cluster:k8s-clusters-info"
	s.same(s.as("reader", "GET", clusters, "").body, `{"k8s-cluster:k8s-clusters-info":{"k8s-clusters":[{"cluster-id":"`+selectedUID+`"}]}}`)
	if got := s.as("ports-a", "GET", clusters, ""); got.code != 403 {
		t.Errorf("%+v", got)
	}
	if got := s.as("ports-a", "GET", "/restconf/data", ""); strings.Contains(got.body, selectedUID) {
		t.Errorf("%+v", got)
	}
	// As COE's watcher sends it when it starts.
	s.want(200, "PUT", "/restconf/config/k8s-cluster:k8s-clusters-info/", `{"k8s-clusters-info":{"k8s-clusters":[{"cluster-id":"`+selectedUID+`"}]}}`)
}
