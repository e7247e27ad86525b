// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/policyapi"
)

// read is an object as people write it.
func read[T any](t *testing.T, text string) *T {
	t.Helper()
	o := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
		t.Fatal(err)
	}
	return o
}

// The examples of docs/use/policy.md mean what is said there.
func TestExamples(t *testing.T) {
	c := &Cluster{
		Namespaces: []*corev1.Namespace{
			{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
			{ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: map[string]string{"team": "friends"}}},
		},
		NetworkPolicies: []*networkingv1.NetworkPolicy{read[networkingv1.NetworkPolicy](t, `
metadata: {name: web, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
    - from: [{podSelector: {matchLabels: {app: front}}}, {namespaceSelector: {matchLabels: {team: friends}}}]
      ports: [{port: http}]`)},
		ClusterNetworkPolicies: []*policyapi.ClusterNetworkPolicy{read[policyapi.ClusterNetworkPolicy](t, `
metadata: {name: no-metadata-server}
spec:
  tier: Admin
  priority: 10
  subject: {namespaces: {}}
  egress:
    - {name: metadata, action: Deny, to: [{networks: [169.254.169.254/32]}]}`)},
		SecurityGroups: []*v1alpha1.SecurityGroup{read[v1alpha1.SecurityGroup](t, `
metadata: {name: database, namespace: shop}
spec:
  rules:
    - {direction: Ingress, etherType: IPv4, protocol: tcp, portRangeMin: 5432, portRangeMax: 5432, remoteGroup: web}
    - {direction: Egress, etherType: IPv4}`), {ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}},
	}
	n1, n2 := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
	pod := func(namespace, app, address, group string) End {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app, Labels: map[string]string{"app": app}},
			Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}}},
		}
		if group != "" {
			p.Annotations = map[string]string{v1alpha1.AnnotationSecurityGroups: group}
		}
		return End{Pod: p, Interface: "eth0", Address: netip.MustParseAddr(address)}
	}
	web, front, back := pod("shop", "web", "10.244.1.5", ""), pod("shop", "front", "10.244.1.6", ""), pod("shop", "back", "10.244.1.7", "")
	friend, db, lost := pod("other", "back", "10.244.1.8", ""), pod("shop", "db", "10.244.1.9", "database"), pod("shop", "x", "10.244.1.10", "none")
	client, second := front, web
	client.Pod = front.Pod.DeepCopy()
	client.Pod.Annotations = map[string]string{v1alpha1.AnnotationSecurityGroups: "web"}
	second.Interface, second.Address = "net1", netip.MustParseAddr("10.9.0.5")
	node := func(n *corev1.Node, masked bool) End {
		return End{Node: n, Masked: masked, Address: netip.MustParseAddr("192.0.2.1")}
	}
	outside := End{Address: netip.MustParseAddr("169.254.169.254")}

	open := func(direction string) Verdict { return Verdict{Allowed: true, Direction: direction} }
	isolated := Verdict{Direction: Ingress, Tier: Namespaced, By: []string{"NetworkPolicy shop/web"}}
	rule := Verdict{Allowed: true, Direction: Ingress, Tier: Namespaced, By: []string{"NetworkPolicy shop/web, rule 1"}}
	for name, tc := range map[string]struct {
		from, to End
		port     uint16
		want     Verdict
	}{
		"by a pod of the own namespace":       {front, web, 8080, rule},
		"by a pod of another one":             {friend, web, 8080, rule},
		"at another port":                     {front, web, 80, isolated},
		"by none of these":                    {back, web, 8080, isolated},
		"at another interface":                {back, second, 8080, open(Ingress)},
		"by itself":                           {web, web, 80, open(Ingress)},
		"by its node":                         {node(n1, false), web, 80, open(Ingress)},
		"through its node, from outside":      {node(n1, true), web, 80, isolated},
		"by another node":                     {node(n2, false), web, 80, isolated},
		"who is not isolated":                 {back, front, 80, open(Ingress)},
		"the metadata server":                 {back, outside, 80, Verdict{Direction: Egress, Tier: Admin, By: []string{"ClusterNetworkPolicy no-metadata-server, rule 1"}}},
		"a member of the remote group":        {client, db, 5432, Verdict{Direction: Egress, Tier: SecurityGroups, By: []string{"SecurityGroup shop/web"}}},
		"who is in no group":                  {front, db, 5432, Verdict{Direction: Ingress, Tier: SecurityGroups, By: []string{"SecurityGroup shop/database"}}},
		"egress of a group":                   {db, front, 80, open(Ingress)},
		"who names a group that is not there": {lost, front, 80, Verdict{Direction: Egress}},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.Judge(Connection{Source: tc.from, Destination: tc.to, Protocol: TCP, Port: tc.port})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
	c.SecurityGroups[1].Spec.Rules = []v1alpha1.SecurityGroupRule{{Direction: v1alpha1.RuleEgress, EtherType: v1alpha1.EtherIPv4}}
	if v := c.Judge(Connection{Source: client, Destination: db, Protocol: TCP, Port: 5432}); !v.Allowed {
		t.Errorf("a member of the remote group that may send: %+v", v)
	}
}
