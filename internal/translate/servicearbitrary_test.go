// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"coelan.io/coelan/api/v1alpha1"
)

// often draws a good value three times of four, and else any of all.
func often[T any](good []T, odd ...T) *rapid.Generator[T] {
	all := rapid.SampledFrom(append(slices.Clone(good), odd...))
	return rapid.OneOf(rapid.SampledFrom(good), rapid.SampledFrom(good), rapid.SampledFrom(good), all)
}

// Few values of each kind, so that objects meet, and among them such as no API server lets in.
var (
	anyNamespace = often([]string{"shop"}, "tenant", "later")
	anyName      = often([]string{"web", "db"}, "dns", "web-2")
	anySliceName = often([]string{"s1", "s2"}, "s3", "s4")
	anyNode      = often([]string{"n1", "n2", "n3"}, "")
	anyZone      = often([]string{"a", "b"}, "")
	anyFamily    = rapid.SampledFrom([]corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol, ""})
	anyPort      = often([]int32{80, 81}, 443, 53, 65535, 0, -1, 65536)
	anyNodePort  = often([]int32{0, 30001, 30002}, 30022, 65535, -5, 99999)
	anyPortName  = often([]string{"http"}, "dns", "")
	anyProtocol  = often([]corev1.Protocol{"TCP"}, "UDP", "SCTP", "", "tcp")
	anyClusterIP = often([]string{"10.96.0.1", "10.96.0.2", "10.96.0.3", "fd00:96::1", "fd00:96::2"}, "None", "", "10.96.0.01", "::ffff:10.96.0.1")
	anyIP        = often(
		[]string{"198.51.100.1", "198.51.100.2", "2001:db8::1", "10.96.0.1"},
		"2001:db8::2", "fd00:96::1", "198.051.100.001", "", "127.0.0.1", "::1", "fe80::1%eth0", "169.254.64.2", "fd69:c0e1::1", "ff02::1", "::", "0.0.0.0",
		"::ffff:198.51.100.1", "x", "1.2.3.4.5", "0/0", "..0.0",
	)
	anyEndpointIP = often(
		[]string{"10.244.1.2", "10.244.1.3", "10.244.2.2"},
		"10.244.1.02", "fd00:10:244::2", "fd00:10:244::3", "FD00:10:244::2", "127.0.0.1", "::ffff:10.244.1.2", "x", "",
	)
	anyRange = often(
		[]string{"10.0.0.0/8", " 10.1.0.0/16\t", "2001:db8::/32"},
		"10.0.0.1/8", "0.0.0.0/0", "::/0", "2001:db8:1::/48", "010.0.0.0/08", "10.0.0.0", "::ffff:10.0.0.0/104", "", "x/8",
	)
)

// maybe draws none sometimes.
func maybe[T any](g *rapid.Generator[T]) *rapid.Generator[*T] { return rapid.Ptr(g, true) }

func draw[T any](t *rapid.T, g *rapid.Generator[T], what string) T { return g.Draw(t, what) }

func list[T any](t *rapid.T, g *rapid.Generator[T], most int, what string) []T {
	return rapid.SliceOfN(g, 0, most).Draw(t, what)
}

var anyService = rapid.Custom(func(t *rapid.T) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: draw(t, anyNamespace, "namespace"), Name: draw(t, anyName, "name"),
		UID:               types.UID(draw(t, rapid.SampledFrom([]string{"1", "2", ""}), "uid")),
		CreationTimestamp: metav1.NewTime(time.Unix(int64(draw(t, rapid.IntRange(0, 2), "created")), 0)),
	}}
	if draw(t, rapid.IntRange(0, 9), "label") == 0 {
		svc.Labels = map[string]string{draw(t, rapid.SampledFrom([]string{labelHeadless, labelProxyName}), "which"): ""}
	}
	s := &svc.Spec
	s.Type = draw(t, often([]corev1.ServiceType{"ClusterIP", "NodePort", "LoadBalancer"}, "ExternalName", ""), "type")
	s.ClusterIPs = list(t, anyClusterIP, 3, "clusterIPs")
	s.ClusterIP = draw(t, anyClusterIP, "clusterIP")
	if len(s.ClusterIPs) > 0 {
		s.ClusterIP = s.ClusterIPs[0]
	}
	if draw(t, rapid.IntRange(0, 3), "says families") == 0 {
		s.IPFamilies = list(t, anyFamily, 2, "families")
	}
	s.Ports = list(t, rapid.Custom(func(t *rapid.T) corev1.ServicePort {
		return corev1.ServicePort{
			Name: draw(t, anyPortName, "name"), Protocol: draw(t, anyProtocol, "protocol"),
			Port: draw(t, anyPort, "port"), NodePort: draw(t, anyNodePort, "node port"),
		}
	}), 4, "ports")
	s.ExternalIPs = list(t, anyIP, 3, "external IPs")
	for _, ip := range list(t, anyIP, 3, "balancers") {
		in := corev1.LoadBalancerIngress{IP: ip}
		in.IPMode = draw(t, maybe(rapid.SampledFrom([]corev1.LoadBalancerIPMode{"VIP", "Proxy", "x"})), "mode")
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, in)
	}
	s.LoadBalancerSourceRanges = list(t, anyRange, 3, "ranges")
	s.SessionAffinity = draw(t, rapid.SampledFrom([]corev1.ServiceAffinity{"", "None", "ClientIP", "x"}), "affinity")
	if seconds := draw(t, maybe(rapid.SampledFrom([]int32{1, 60, 86400, 0, -1, 1 << 30})), "seconds"); seconds != nil {
		s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: seconds}}
	}
	s.InternalTrafficPolicy = draw(t, maybe(rapid.SampledFrom([]corev1.ServiceInternalTrafficPolicy{"Local", "Cluster"})), "internal")
	s.ExternalTrafficPolicy = draw(t, rapid.SampledFrom([]corev1.ServiceExternalTrafficPolicy{"Local", "Cluster", ""}), "external")
	s.HealthCheckNodePort = draw(t, anyNodePort, "health")
	s.LoadBalancerClass = draw(t, maybe(rapid.SampledFrom([]string{v1alpha1.OctaviaClass, "other"})), "class")
	return svc
})

var anySlice = rapid.Custom(func(t *rapid.T) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: draw(t, anyNamespace, "namespace"), Name: draw(t, anySliceName, "name"), Labels: map[string]string{},
	}}
	if of := draw(t, anyName, "of"); draw(t, rapid.IntRange(0, 19), "nobody's") > 0 {
		s.Labels[discoveryv1.LabelServiceName] = of
	}
	if draw(t, rapid.IntRange(0, 19), "label") == 0 {
		s.Labels[labelHeadless] = ""
	}
	s.AddressType = draw(t, often([]discoveryv1.AddressType{"IPv4"}, "IPv6", "FQDN"), "type")
	s.Ports = list(t, rapid.Custom(func(t *rapid.T) discoveryv1.EndpointPort {
		port := draw(t, maybe(anyPort), "port")
		return discoveryv1.EndpointPort{Name: ptr(draw(t, anyPortName, "name")), Protocol: draw(t, maybe(anyProtocol), "protocol"), Port: port}
	}), 3, "ports")
	if draw(t, rapid.IntRange(0, 3), "any ports") > 0 {
		s.Ports = slice("", "").Ports
	}
	s.Endpoints = list(t, anyEndpoint, 4, "endpoints")
	return s
})

var anyEndpoint = rapid.Custom(func(t *rapid.T) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{
		Addresses: list(t, anyEndpointIP, 2, "addresses"), NodeName: draw(t, maybe(anyNode), "node"),
		Conditions: discoveryv1.EndpointConditions{
			Ready: draw(t, maybe(rapid.Bool()), "ready"), Serving: draw(t, maybe(rapid.Bool()), "serving"), Terminating: draw(t, maybe(rapid.Bool()), "terminating"),
		},
	}
	if draw(t, rapid.Bool(), "hints") {
		e.Hints = &discoveryv1.EndpointHints{}
		for _, z := range list(t, anyZone, 2, "zones") {
			e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: z})
		}
		for _, n := range list(t, anyNode, 2, "nodes") {
			e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: n})
		}
	}
	return e
})
