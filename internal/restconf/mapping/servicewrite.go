// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"coelan.io/coelan/internal/restconf/datatree"
)

// fixed says why RESTCONF cannot write a Service; empty if it can.
func fixed(s *corev1.Service, of []*discoveryv1.EndpointSlice) string {
	switch {
	case len(s.Spec.Selector) > 0:
		return "has a selector, by which Kubernetes keeps its endpoints: change it with kubectl"
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		return "is of type ExternalName, which the model does not have: change it with kubectl"
	case s.Namespace == metav1.NamespaceDefault && s.Name == "kubernetes":
		return "is kept by the API server"
	}
	for _, slice := range of {
		if by := slice.Labels[discoveryv1.LabelManagedBy]; by != "" && by != ManagedBy {
			return fmt.Sprintf("has the EndpointSlice %s, which is kept by %s", slice.Name, by)
		}
	}
	return ""
}

// mayWrite returns an error for a Service that RESTCONF cannot write.
func mayWrite(w *World, s *corev1.Service) error {
	if why := fixed(s, slicesOf(w, keyOf(s))); why != "" {
		return unsupported("uid", fmt.Sprintf("the Service %s %s", keyOf(s), why))
	}
	return nil
}

// fixedServices are the uids of entries of Services that RESTCONF cannot write.
func fixedServices(w *World, uid func(*corev1.Service, []*discoveryv1.EndpointSlice) string) []string {
	var list []string
	of := slicesByService(w)
	for _, s := range sortedServices(w) {
		if its := of[keyOf(s)]; fixed(s, its) != "" {
			list = append(list, uid(s, its))
		}
	}
	return list
}

// writeService makes a Service be as the entry says. Addresses and node ports of an entry with a
// cluster-id are those of another cluster, and only kept.
func writeService(w *World, e *serviceEntry) error {
	s, err := editService(w, e)
	if err != nil {
		return err
	}
	before := s.Spec.Ports
	x := serviceExtra{ClusterID: text(e.ClusterId)}
	if err := setServicePorts(s, e, &x); err != nil {
		return err
	}
	if err := setClusterIP(s, e, &x); err != nil {
		return err
	}
	if err := setLoadBalancer(s, e, &x); err != nil {
		return err
	}
	if !slices.Equal(e.ExternalIpAddress, canonicalAddresses(s.Spec.ExternalIPs)) {
		s.Spec.ExternalIPs = e.ExternalIpAddress
	}
	if err := setServiceExtra(s, x); err != nil {
		return err
	}
	w.Services[keyOf(s)] = s
	return setMembers(w, s, e, !reflect.DeepEqual(before, s.Spec.Ports))
}

// editService returns a copy of the entry's Service, or a new one.
func editService(w *World, e *serviceEntry) (*corev1.Service, error) {
	uid := text(e.Uid)
	if s := findService(w, uid); s != nil {
		if err := mayWrite(w, s); err != nil {
			return nil, err
		}
		return s.DeepCopy(), sameService(s, text(e.Name), text(e.Network_NS))
	}
	key := types.NamespacedName{
		Namespace: cmp.Or(text(e.Network_NS), defaultNamespace), Name: cmp.Or(text(e.Name), "service-"+uid),
	}
	if err := checkName(key.Namespace, "network-NS", maxName); err != nil {
		return nil, err
	}
	if problems := validation.IsDNS1035Label(key.Name); len(problems) > 0 {
		return nil, invalid("name", fmt.Sprintf("%q is no name of a Service: %s", key.Name, problems[0]))
	}
	switch s := w.Services[key]; {
	case s != nil && !alive(s):
		return nil, datatree.Fail(datatree.InUse, "name", fmt.Sprintf("the Service %s is being deleted", key))
	case s != nil:
		return nil, datatree.Fail(datatree.DataExists, "name",
			fmt.Sprintf("there is a Service %s already, whose entry has the uid %s: use that, or another name",
				key, serviceUID(s)))
	}
	// The model has one address, but endpoints of both families.
	prefer := corev1.IPFamilyPolicyPreferDualStack
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec:       corev1.ServiceSpec{IPFamilyPolicy: &prefer},
	}
	metav1.SetMetaDataLabel(&s.ObjectMeta, LabelService, uid)
	return s, nil
}

// sameService returns an error if an entry calls its Service by another name.
func sameService(s *corev1.Service, name, namespace string) error {
	if name != "" && name != s.Name {
		return invalid("name", fmt.Sprintf("is %q: the Service of that uid is %s", name, keyOf(s)))
	}
	if namespace != "" && namespace != s.Namespace {
		return invalid("network-NS", fmt.Sprintf("is %q: the Service of that uid is %s", namespace, keyOf(s)))
	}
	return nil
}

// setClusterIP asks for the entry's address. A Service without ports is headless, as Kubernetes has
// none of all ports, and so is one that has no address in its own cluster.
func setClusterIP(s *corev1.Service, e *serviceEntry, x *serviceExtra) error {
	asked, now := text(e.ClusterIpAddress), s.Spec.ClusterIP
	foreign, ported := e.ClusterId != nil, len(e.ServicePorts) > 0
	headless := !ported || foreign && asked == ""
	switch {
	case now == "" && headless:
		s.Spec.ClusterIP = corev1.ClusterIPNone
	case now == "" && !foreign:
		s.Spec.ClusterIP = asked
	case now == "":
	case now == corev1.ClusterIPNone && ported && asked != "":
		return invalid("cluster-ip-address", fmt.Sprintf(
			"cannot be added: the Service %s is headless; delete the entry and make it anew", keyOf(s)))
	case now != corev1.ClusterIPNone && !ported:
		return datatree.Fail(datatree.MissingElement, "service-ports", fmt.Sprintf(
			"the Service %s has the address %s, which needs a port", keyOf(s), now))
	case now != corev1.ClusterIPNone && headless:
		return invalid("cluster-ip-address", fmt.Sprintf(
			"cannot be removed: the Service %s has one; delete the entry and make it anew", keyOf(s)))
	case now != corev1.ClusterIPNone && !foreign && asked != "" && asked != canonicalAddress(now):
		return invalid("cluster-ip-address", fmt.Sprintf(
			"cannot be changed: the Service %s has %s; delete the entry and make it anew", keyOf(s), now))
	}
	if foreign || headless {
		x.ClusterIPAddress = asked
	}
	return nil
}

// setLoadBalancer asks for the entry's address of a load balancer, and sets the type.
func setLoadBalancer(s *corev1.Service, e *serviceEntry, x *serviceExtra) error {
	asked := text(e.LoadBalancer_IP)
	if e.ClusterId != nil {
		x.LoadBalancerIP, x.IngressIPAddress = asked, e.IngressIpAddress
		return nil
	}
	if len(e.IngressIpAddress) > 0 {
		return unsupported("ingress-ip-address", "is what a load balancer has given: ask for one by load-balancer-IP")
	}
	if asked != "" || s.Spec.LoadBalancerIP != "" && asked != canonicalAddress(s.Spec.LoadBalancerIP) {
		s.Spec.LoadBalancerIP = asked
	}
	onNodes := slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort != 0 })
	switch {
	case asked != "":
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
	case s.Spec.Type == corev1.ServiceTypeLoadBalancer:
	case onNodes:
		s.Spec.Type = corev1.ServiceTypeNodePort
	case s.Spec.Type == corev1.ServiceTypeNodePort:
		s.Spec.Type = corev1.ServiceTypeClusterIP
	}
	return nil
}

// setServiceExtra writes the annotation, or removes it.
func setServiceExtra(s *corev1.Service, x serviceExtra) error {
	if reflect.DeepEqual(x, serviceExtra{}) {
		delete(s.Annotations, AnnotationService)
		return nil
	}
	data, err := json.Marshal(x)
	if err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, AnnotationService, string(data))
	return nil
}

// removeService removes a Service and its EndpointSlices.
func removeService(w *World, uid string) error {
	s := findService(w, uid)
	if s == nil {
		return datatree.NotFound("uid")
	}
	if err := mayWrite(w, s); err != nil {
		return err
	}
	removeSlices(w, keyOf(s))
	delete(w.Services, keyOf(s))
	return nil
}

// removeSlices removes the EndpointSlices of a Service.
func removeSlices(w *World, service types.NamespacedName) {
	maps.DeleteFunc(w.Slices, func(_ types.NamespacedName, slice *discoveryv1.EndpointSlice) bool {
		return alive(slice) && ServiceOf(slice) == service
	})
}
