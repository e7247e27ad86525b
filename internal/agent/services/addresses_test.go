// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/intent"
)

// External IPs come and go with objects that own the same addresses.
func TestExternalIPs(t *testing.T) {
	const ip = "198.51.100.7"
	w := newWorld(t, "", nil)
	svc := service("web", "10.96.0.10")
	svc.Spec.ExternalIPs = []string{ip}
	w.from.Services.Set(svc)
	w.hearNetworks("shop")
	w.listed("web")
	has := func(want bool, problem string) {
		t.Helper()
		deadline := time.After(patience)
		for {
			state := w.Intent.State()
			v, there := state.NodeServices().Get("shop/web")
			if there && (len(v.Ports[0].ExternalIPs) == 1) == want {
				break
			}
			select {
			case <-state.Replaced():
			case <-deadline:
				t.Fatalf("the Service is %+v, and is to have an external IP: %v", v, want)
			}
		}
		if got := fmt.Sprint(w.ServiceProblems()[types.NamespacedName{Namespace: "shop", Name: "web"}]); !strings.Contains(got, problem) {
			t.Errorf("problems %s, want %q", got, problem)
		}
	}
	has(true, "")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Address: ip}}}}
	w.SetNodes([]*corev1.Node{node})
	has(false, "is an address of node n2")
	w.SetNodes(nil)
	has(true, "")
	w.about.Pools(kube.Whole([]*v1alpha1.LoadBalancerPool{{
		ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Status: v1alpha1.LoadBalancerPoolStatus{Ranges: []string{ip}},
	}}))
	has(false, "is an address of LoadBalancerPool edge")
	w.about.Pools(kube.Whole[*v1alpha1.LoadBalancerPool](nil))
	has(true, "")
	w.from.CIDRs(kube.Whole([]*networkingv1.ServiceCIDR{{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"198.51.100.0/24"}}}}))
	has(false, "is in 198.51.100.0/24 of the cluster's Services")
	w.from.CIDRs(kube.Whole[*networkingv1.ServiceCIDR](nil))
	has(true, "")
	office := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "office"}}
	office.Spec.Type, office.Spec.Subnets = v1alpha1.VLAN, []v1alpha1.Subnet{{CIDR: "198.51.100.0/24"}}
	w.about.Networks(kube.Whole([]*v1alpha1.Network{office}))
	has(false, "is in 198.51.100.0/24 of network office")
	moved := office.DeepCopy()
	moved.Spec.Subnets[0].CIDR = "203.0.113.0/24"
	w.about.Networks(kube.Whole([]*v1alpha1.Network{moved}))
	has(true, "")
	green := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "green"}, Status: v1alpha1.NetworkStatus{Router: "green"}}
	green.Spec.Router, green.Spec.Subnets = "green", []v1alpha1.Subnet{{CIDR: "198.51.100.0/24"}}
	w.about.Networks(kube.Whole([]*v1alpha1.Network{green}))
	has(true, "")
	router := &v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{Name: "green"}}
	both := []v1alpha1.RouteTarget{v1alpha1.DefaultRouteTarget}
	router.Spec.ImportRouteTargets, router.Spec.ExportRouteTargets = both, both
	w.about.Routers(kube.Whole([]*v1alpha1.Router{router}))
	has(false, "is in 198.51.100.0/24 of network green")
	w.about.Routers(kube.Whole[*v1alpha1.Router](nil))
	has(true, "")
	w.about.Networks(kube.Whole([]*v1alpha1.Network{{
		ObjectMeta: metav1.ObjectMeta{Name: "red"},
		Spec: v1alpha1.NetworkSpec{
			Role: v1alpha1.Primary, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "shop"}},
			Subnets: []v1alpha1.Subnet{{CIDR: "10.1.0.0/24"}},
		},
		Status: v1alpha1.NetworkStatus{Router: "red"},
	}}))
	has(false, "private router red")
}

func TestNodePortOfTheHost(t *testing.T) {
	w := newWorld(t, "", nil)
	w.mu.Lock()
	w.listeners = []listener{{intent.TCP, netip.IPv6Unspecified(), 30080}}
	w.mu.Unlock()
	s := service("web", "10.96.0.10", corev1.ServicePort{Port: 80, NodePort: 30080}, corev1.ServicePort{Name: "b", Port: 81, NodePort: 30081})
	s.Spec.Type = corev1.ServiceTypeNodePort
	w.from.Services.Set(s)
	w.hearNetworks("shop")
	w.listed("web")
	w.await("web@default 30081")
	eventually(t, func() string {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.events) != 1 || !strings.Contains(w.events[0], "shop/web uid-web InUse: spec.ports[0].nodePort: ") ||
			!strings.Contains(w.events[0], "30080") || !strings.Contains(w.events[0], "n1") {
			return fmt.Sprintf("events: %q", w.events)
		}
		return ""
	})
	if p := w.Problems(); len(p) != 1 || !strings.Contains(p[0], "30080") {
		t.Errorf("problems: %q", p)
	}
	w.mu.Lock()
	w.listeners = nil
	w.mu.Unlock()
	w.await("web@default 30080 30081")
	if p := w.Problems(); len(p) != 0 {
		t.Errorf("problems: %q", p)
	}
}
