// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
)

// Labels that say that a Service, or the EndpointSlices that were made for it,
// are for another implementation.
const (
	labelProxyName = "service.kubernetes.io/service-proxy-name"
	labelHeadless  = corev1.IsHeadlessService
)

// serviceRecord is what is kept of a Service. It is never changed.
type serviceRecord struct {
	namespace, name, uid string
	created              int64 // seconds
	// clusterIPs are by family; the Service is of those families that have one. Without any,
	// it is not balanced.
	clusterIPs   [families]netip.Addr
	ports        []recordPort
	externalIPs  []recordAddress // sorted
	balancerIPs  []recordAddress // sorted; none of externalIPs
	sourceRanges []netip.Prefix

	affinitySeconds              int
	healthCheckNodePort          uint16
	internalLocal, externalLocal bool
	octavia                      bool
	problems                     []Problem
}

type recordPort struct {
	name           string
	protocol       intent.Protocol
	port, nodePort uint16
}

// recordAddress is an address and its place in its list.
type recordAddress struct {
	ip    netip.Addr
	index int32
}

// isNotOurs says whether labels leave an object to another implementation.
func isNotOurs(labels map[string]string) bool {
	_, other := labels[labelProxyName]
	_, headless := labels[labelHeadless]
	return other || headless
}

func (r *serviceRecord) balanced() bool { return r.clusterIPs != [families]netip.Addr{} }

// readService keeps what is of use of a Service.
func readService(o *corev1.Service) *serviceRecord {
	r := &serviceRecord{namespace: o.Namespace, name: o.Name, uid: string(o.UID), created: o.CreationTimestamp.Unix()}
	if isNotOurs(o.Labels) || o.Spec.Type == corev1.ServiceTypeExternalName ||
		o.Spec.ClusterIP == "" || o.Spec.ClusterIP == corev1.ClusterIPNone {
		return r
	}
	r.readClusterIPs(o)
	if !r.balanced() {
		return r
	}
	r.readPorts(o)
	r.readExternal(o)
	r.readPolicies(o)
	return r
}

func (r *serviceRecord) report(field, value string, err error) {
	r.problems = append(r.problems, Problem{
		Object: "service " + r.namespace + "/" + r.name, Field: field, Value: value, Reason: Malformed,
		Text: err.Error(),
	})
}

func (r *serviceRecord) readClusterIPs(o *corev1.Service) {
	field, texts := "spec.clusterIPs", o.Spec.ClusterIPs
	if len(texts) == 0 {
		field, texts = "spec.clusterIP", []string{o.Spec.ClusterIP}
	}
	for i, text := range texts {
		at := field
		if field == "spec.clusterIPs" {
			at = fmt.Sprintf("%s[%d]", field, i)
		}
		ip, err := serviceAddress(text)
		if err != nil {
			r.report(at, text, err)
			continue
		}
		f := familyOf(ip)
		switch {
		case i < len(o.Spec.IPFamilies) && string(o.Spec.IPFamilies[i]) != f.String():
			r.report(at, text,
				fmt.Errorf("is not of the family %s that spec.ipFamilies[%d] says; create the Service anew",
					o.Spec.IPFamilies[i], i))
		case r.clusterIPs[f].IsValid():
			r.report(at, text, fmt.Errorf("is the second %s address; a Service has at most one of each family", f))
		default:
			r.clusterIPs[f] = ip
		}
	}
}

func (r *serviceRecord) readPorts(o *corev1.Service) {
	r.ports = make([]recordPort, 0, len(o.Spec.Ports))
	for i, p := range o.Spec.Ports {
		field := fmt.Sprintf("spec.ports[%d]", i)
		protocol, known := ProtocolOf(p.Protocol)
		switch {
		case !known:
			r.report(field+".protocol", string(p.Protocol), errors.New("is not TCP, UDP or SCTP"))
		case !IsPort(p.Port):
			r.report(field+".port", fmt.Sprint(p.Port), errors.New("is not a port: those are 1 to 65535"))
		case p.NodePort != 0 && !IsPort(p.NodePort):
			r.report(field+".nodePort", fmt.Sprint(p.NodePort), errors.New("is not a port: those are 1 to 65535"))
		case slices.ContainsFunc(r.ports, func(q recordPort) bool {
			return q.protocol == protocol && q.port == uint16(p.Port)
		}):
			r.report(field+".port", fmt.Sprint(p.Port), fmt.Errorf("is there twice with protocol %s", protocol))
		default:
			r.ports = append(r.ports, recordPort{p.Name, protocol, uint16(p.Port), uint16(p.NodePort)})
		}
	}
}

func (r *serviceRecord) readExternal(o *corev1.Service) {
	var balancers []string
	for _, in := range o.Status.LoadBalancer.Ingress {
		if in.IPMode != nil && *in.IPMode != corev1.LoadBalancerIPModeVIP {
			in.IP = "" // the load balancer sends to node ports itself
		}
		balancers = append(balancers, in.IP)
	}
	r.balancerIPs = r.readAddresses(balancers, balancerIPsField)
	r.externalIPs = r.readAddresses(o.Spec.ExternalIPs, externalIPsField)
	// An address that is in both lists is a load balancer's, which has source ranges.
	r.externalIPs = slices.DeleteFunc(r.externalIPs, func(a recordAddress) bool {
		return slices.ContainsFunc(r.balancerIPs, func(b recordAddress) bool { return a.ip == b.ip })
	})
	of := [families]bool{r.clusterIPs[ipv4].IsValid(), r.clusterIPs[ipv6].IsValid()}
	r.sourceRanges = sourceRanges(o.Spec.LoadBalancerSourceRanges, of, func(i int, err error) {
		r.report(fmt.Sprintf("spec.loadBalancerSourceRanges[%d]", i), o.Spec.LoadBalancerSourceRanges[i], err)
	})
}

// The lists of addresses outside of the cluster's own.
const (
	externalIPsField = "spec.externalIPs[%d]"
	balancerIPsField = "status.loadBalancer.ingress[%d].ip"
)

// readAddresses reads a list and skips empty entries.
func (r *serviceRecord) readAddresses(texts []string, field string) (list []recordAddress) {
	for i, text := range texts {
		if text == "" {
			continue
		}
		ip, err := serviceAddress(text)
		f := familyOf(ip)
		switch {
		case err != nil:
			r.report(fmt.Sprintf(field, i), text, err)
		case !r.clusterIPs[f].IsValid():
			// A load balancer may translate between families, and then uses node ports.
			if field == externalIPsField {
				r.report(fmt.Sprintf(field, i), text,
					fmt.Errorf("is %s, which the Service is not; add %s to spec.ipFamilies", f, f))
			}
		case !slices.ContainsFunc(list, func(a recordAddress) bool { return a.ip == ip }):
			list = append(list, recordAddress{ip, int32(i)})
		}
	}
	slices.SortFunc(list, func(a, b recordAddress) int { return a.ip.Compare(b.ip) })
	return slices.Clip(list)
}

// defaultAffinitySeconds is what the API server sets.
const defaultAffinitySeconds = corev1.DefaultClientIPServiceAffinitySeconds

// maxAffinitySeconds is what the API server allows.
const maxAffinitySeconds = 86400

func (r *serviceRecord) readPolicies(o *corev1.Service) {
	if o.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		r.affinitySeconds = int(defaultAffinitySeconds)
		if c := o.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
			if s := int(*c.ClientIP.TimeoutSeconds); s > 0 && s <= maxAffinitySeconds {
				r.affinitySeconds = s
			} else {
				r.report("spec.sessionAffinityConfig.clientIP.timeoutSeconds", fmt.Sprint(s),
					fmt.Errorf("is not 1 to %d; it is %d seconds instead", maxAffinitySeconds, defaultAffinitySeconds))
			}
		}
	}
	r.internalLocal = o.Spec.InternalTrafficPolicy != nil &&
		*o.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
	// The API server keeps the external policy when nothing external is left.
	outside := o.Spec.Type == corev1.ServiceTypeLoadBalancer || o.Spec.Type == corev1.ServiceTypeNodePort ||
		len(o.Spec.ExternalIPs) > 0
	r.externalLocal = outside && o.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	r.octavia = OfOctavia(o)
	if p := o.Spec.HealthCheckNodePort; p != 0 && r.externalLocal && o.Spec.Type == corev1.ServiceTypeLoadBalancer {
		if IsPort(p) {
			r.healthCheckNodePort = uint16(p)
		} else {
			r.report("spec.healthCheckNodePort", fmt.Sprint(p), errors.New("is not a port: those are 1 to 65535"))
		}
	}
}

// IsPort says whether p can be the number of a port.
func IsPort(p int32) bool { return p > 0 && p <= 65535 }

// ProtocolOf reads a protocol; the API server makes an empty one TCP.
func ProtocolOf(p corev1.Protocol) (intent.Protocol, bool) {
	switch p {
	case corev1.ProtocolTCP, "":
		return intent.TCP, true
	case corev1.ProtocolUDP:
		return intent.UDP, true
	case corev1.ProtocolSCTP:
		return intent.SCTP, true
	}
	return 0, false
}

// OfOctavia reports whether a Service is of the class of Octavia's load balancers.
func OfOctavia(o *corev1.Service) bool {
	class := o.Spec.LoadBalancerClass
	return o.Spec.Type == corev1.ServiceTypeLoadBalancer && class != nil && *class == v1alpha1.OctaviaClass
}
