// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/openconfig/ygot/ygot"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/internal/restconf/datatree"
	"coelan.io/coelan/internal/restconf/yangmodel"
)

// LabelService on a Service is the uid of its entry. AnnotationService has the entry's leaves that
// are those of another cluster, or that the Service has no field for.
const (
	LabelService      = "coelan.io/restconf-service"
	AnnotationService = "coelan.io/restconf-service"
)

type (
	serviceEntry = yangmodel.Service_ServiceInformation_Services
	servicePort  = yangmodel.Service_ServiceInformation_Services_ServicePorts
)

// serviceExtra is the text of AnnotationService.
type serviceExtra struct {
	ClusterID        string   `json:"cluster-id,omitempty"`
	ClusterIPAddress string   `json:"cluster-ip-address,omitempty"`
	LoadBalancerIP   string   `json:"load-balancer-IP,omitempty"`
	IngressIPAddress []string `json:"ingress-ip-address,omitempty"`
	// NodePorts are by the names of ports.
	NodePorts map[string]int32 `json:"node-ports,omitempty"`
}

// services are Services of Kubernetes. Those with a selector are read alone.
func services() *List {
	return &List{
		Container: "service-information", Name: "services",
		Reads:       []Resource{Services, Slices, Ports},
		Guards:      []Resource{Pods},
		Single:      IfRead,
		Refers:      refersTo,
		New:         func() ygot.GoStruct { return &serviceEntry{} },
		Entries:     func(w *World) []ygot.GoStruct { return structs(showServices(w, false)) },
		Operational: func(w *World) []ygot.GoStruct { return structs(showServices(w, true)) },
		Write:       writer(writeService),
		Remove:      removeService,
		Kept: func(w *World) []string {
			return fixedServices(w, func(s *corev1.Service, _ []*discoveryv1.EndpointSlice) string {
				return serviceUID(s)
			})
		},
	}
}

// serviceUID is the uid of a Service's entry.
func serviceUID(s *corev1.Service) string {
	return cmp.Or(s.Labels[LabelService], string(s.UID))
}

// sortedServices are the Services that are not being deleted, in the order of their names.
func sortedServices(w *World) []*corev1.Service {
	var list []*corev1.Service
	for _, s := range w.Services {
		if alive(s) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *corev1.Service) int { return compareKeys(keyOf(a), keyOf(b)) })
	return list
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// keyOf is the namespace and the name of an object.
func keyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// findService finds a Service by the uid of its entry.
func findService(w *World, uid string) (found *corev1.Service) {
	for _, s := range w.Services {
		if alive(s) && serviceUID(s) == uid && (found == nil || compareKeys(keyOf(s), keyOf(found)) < 0) {
			found = s
		}
	}
	return found
}

// refersTo has the Service of an entry of services or endpoints that is written, and the members of
// its leaf-list endpoints.
func refersTo(of *Entry, entry map[string]any, path datatree.Path) bool {
	if len(path) > 2 {
		return path[2].Node.Name != "endpoints"
	}
	if name, _ := entry["name"].(string); name != "" {
		namespace, _ := entry["network-NS"].(string)
		of.Named = types.NamespacedName{Namespace: cmp.Or(namespace, defaultNamespace), Name: name}
	}
	members, _ := entry["endpoints"].([]any)
	for _, uid := range members {
		of.Members = append(of.Members, uid.(string))
	}
	return true
}

// readServiceExtra is what the annotation says; nothing if a client of Kubernetes has broken it.
func readServiceExtra(s *corev1.Service) serviceExtra {
	var x serviceExtra
	if text := s.Annotations[AnnotationService]; text != "" && json.Unmarshal([]byte(text), &x) != nil {
		return serviceExtra{}
	}
	return x
}

// showServices are the Services as they are asked for, or as they are in operation.
func showServices(w *World, operational bool) []*serviceEntry {
	var list []*serviceEntry
	of := slicesByService(w)
	for _, s := range sortedServices(w) {
		e := &serviceEntry{
			Uid: ygot.String(serviceUID(s)), Name: ygot.String(s.Name), Network_NS: ygot.String(s.Namespace),
			ExternalIpAddress: canonicalAddresses(s.Spec.ExternalIPs), Endpoints: memberUIDs(w, of[keyOf(s)]),
		}
		x := readServiceExtra(s)
		e.ClusterId = optional(x.ClusterID)
		foreign := x.ClusterID != "" && !operational
		if foreign {
			e.ClusterIpAddress, e.LoadBalancer_IP = optional(x.ClusterIPAddress), optional(x.LoadBalancerIP)
			e.IngressIpAddress = x.IngressIPAddress
		} else {
			showAddresses(e, s, x, operational)
		}
		for i := range s.Spec.Ports {
			showServicePort(e, &s.Spec.Ports[i], x, foreign)
		}
		list = append(list, e)
	}
	return list
}

// showAddresses shows the addresses that a Service has in this cluster.
func showAddresses(e *serviceEntry, s *corev1.Service, x serviceExtra, operational bool) {
	if s.Spec.ClusterIP != corev1.ClusterIPNone && s.Spec.ClusterIP != "" {
		e.ClusterIpAddress = ygot.String(canonicalAddress(s.Spec.ClusterIP))
	}
	if s.Spec.LoadBalancerIP != "" {
		e.LoadBalancer_IP = ygot.String(canonicalAddress(s.Spec.LoadBalancerIP))
	}
	if !operational {
		e.ClusterIpAddress = cmp.Or(optional(x.ClusterIPAddress), e.ClusterIpAddress)
		return
	}
	for _, i := range s.Status.LoadBalancer.Ingress {
		if i.IP != "" {
			e.IngressIpAddress = append(e.IngressIpAddress, canonicalAddress(i.IP))
		}
	}
}

func showServicePort(e *serviceEntry, p *corev1.ServicePort, x serviceExtra, foreign bool) {
	node := p.NodePort
	if foreign {
		node = x.NodePorts[p.Name]
	}
	if e.ServicePorts == nil {
		e.ServicePorts = map[string]*servicePort{}
	}
	e.ServicePorts[p.Name] = &servicePort{
		Name: ygot.String(p.Name), Port: ygot.Int32(p.Port), TargetPort: ygot.String(p.TargetPort.String()),
		NodePort: ygot.Int32(node),
	}
}

func canonicalAddresses(list []string) []string {
	var result []string
	for _, a := range list {
		if a = canonicalAddress(strings.TrimSpace(a)); !slices.Contains(result, a) {
			result = append(result, a)
		}
	}
	return result
}
