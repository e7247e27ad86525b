// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kuryrPublic is the address that Kuryr has given the Service moved/web.
const kuryrPublic = "203.0.113.20"

// kuryrBalancer is what Kuryr has made of a Service of type LoadBalancer: the floating IP, and the
// port with the ClusterIP that it leads to, in place of Octavia's.
type kuryrBalancer struct {
	external, floating, vip string
}

// newKuryrBalancer makes the Service moved/web, and of it what Kuryr would.
func newKuryrBalancer(ctx context.Context, t *testing.T) kuryrBalancer {
	t.Helper()
	apply(ctx, t, fmt.Sprintf(kuryrKinds, "loadbalancer", "LoadBalancer"))
	service, err := world.api.CoreV1().Services("moved").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": "web"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Ports: []corev1.ServicePort{{Port: webPort}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var b kuryrBalancer
	b.external = makeInNeutron(ctx, t, "network", `"name": "public", "router:external": true`)
	makeInNeutron(ctx, t, "subnet", fmt.Sprintf(`"network_id": %q, "ip_version": 4, "cidr": "203.0.113.0/24", "enable_dhcp": false`, b.external))
	network := makeInNeutron(ctx, t, "network", `"name": "services"`)
	subnet := makeInNeutron(ctx, t, "subnet", fmt.Sprintf(`"network_id": %q, "ip_version": 4, "cidr": "10.96.0.0/16", "gateway_ip": "10.96.255.254",
		"enable_dhcp": false`, network))
	router := makeInNeutron(ctx, t, "router", fmt.Sprintf(`"name": "kuryr-services", "external_gateway_info": {"network_id": %q}`, b.external))
	t.Cleanup(func() { // what is left goes in the order in which it can
		ctx := context.WithoutCancel(ctx)
		for _, args := range [][]string{
			{"floating", "ip", "delete", b.floating}, {"port", "delete", b.vip}, {"router", "remove", "subnet", router, subnet},
			{"router", "delete", router}, {"network", "delete", network}, {"network", "delete", b.external},
		} {
			_, _ = openStack(ctx, args...)
		}
	})
	if _, err := openStack(ctx, "router", "add", "subnet", router, subnet); err != nil {
		t.Fatal(err)
	}
	b.vip = makeInNeutron(ctx, t, "port", fmt.Sprintf(`"name": "octavia-lb-web", "device_owner": "Octavia", "network_id": %q,
		"fixed_ips": [{"subnet_id": %q, "ip_address": %q}]`, network, subnet, service.Spec.ClusterIP))
	b.floating = makeInNeutron(ctx, t, "floatingip", fmt.Sprintf(`"description": "kuryr_lb", "floating_network_id": %q, "floating_ip_address": %q,
		"port_id": %q`, b.external, kuryrPublic, b.vip))
	if _, err := world.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd", "kuryrloadbalancers.openstack.org"); err != nil {
		t.Fatal(err)
	}
	applyJSON(ctx, t, map[string]any{
		"apiVersion": "openstack.org/v1", "kind": "KuryrLoadBalancer", "metadata": map[string]any{"name": "web", "namespace": "moved"},
		"spec": map[string]any{"ip": service.Spec.ClusterIP, "type": "LoadBalancer", "provider": "ovn"},
		"status": map[string]any{
			"loadbalancer":        map[string]any{"ip": service.Spec.ClusterIP, "port_id": b.vip},
			"service_pub_ip_info": map[string]any{"ip_id": b.floating, "ip_addr": kuryrPublic, "alloc_method": "pool"},
		},
	})
	return b
}

// moves has a FloatingIP take over Kuryr's floating IP, from the load balancer as it is.
func (b kuryrBalancer) moves(ctx context.Context, t *testing.T) {
	t.Helper()
	apply(ctx, t, fmt.Sprintf(`
apiVersion: coelan.io/v1alpha1
kind: Network
metadata: {name: public, annotations: {coelan.io/neutron-network: %s}}
spec: {type: Flat, physicalNetwork: office, external: true, subnets: [{cidr: 203.0.113.0/24, gateway: 203.0.113.1}]}
---
apiVersion: coelan.io/v1alpha1
kind: FloatingIP
metadata: {name: web, namespace: moved}
spec: {network: public, service: web, address: %s}
`, b.external, kuryrPublic))
	if err := eventually(ctx, func() error {
		out, err := openStack(ctx, "floating", "ip", "show", "-f", "json", b.floating)
		if err != nil {
			return err
		}
		var f struct {
			Description string
			Address     string  `json:"floating_ip_address"`
			Port        *string `json:"port_id"`
		}
		if err := json.Unmarshal(out, &f); err != nil {
			return err
		}
		if !strings.HasSuffix(f.Description, "/FloatingIP/moved/web") || f.Address != kuryrPublic || f.Port != nil {
			return fmt.Errorf("the floating IP is not adopted: %s", out)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := world.Kubectl(ctx, "-n", "moved", "wait", "--for=condition=Programmed", "--timeout=90s", "floatingips.coelan.io", "web"); err != nil {
		t.Error(err)
	}
	// Then the load balancer goes.
	if _, err := openStack(ctx, "port", "delete", b.vip); err != nil {
		t.Error(err)
	}
	if out, err := openStack(ctx, "floating", "ip", "show", "-f", "value", "-c", "floating_ip_address", b.floating); err != nil ||
		strings.TrimSpace(string(out)) != kuryrPublic {
		t.Errorf("without the load balancer it is %s, %v", out, err)
	}
}
