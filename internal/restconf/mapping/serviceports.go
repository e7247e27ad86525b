// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
)

// setServicePorts sets a Service's ports. Those that it has keep their order and what the model has
// no node for, such as the protocol; new ones are of TCP.
func setServicePorts(s *corev1.Service, e *serviceEntry, x *serviceExtra) error {
	var list []corev1.ServicePort
	wanted := maps.Clone(e.ServicePorts)
	for i := range s.Spec.Ports {
		p := s.Spec.Ports[i]
		if entry := wanted[p.Name]; entry != nil {
			if err := setServicePort(&p, entry, x); err != nil {
				return err
			}
			list = append(list, p)
			delete(wanted, p.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		p := corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP}
		if err := setServicePort(&p, wanted[name], x); err != nil {
			return err
		}
		list = append(list, p)
	}
	if err := checkServicePorts(list); err != nil {
		return err
	}
	s.Spec.Ports = list
	return nil
}

func setServicePort(p *corev1.ServicePort, e *servicePort, x *serviceExtra) error {
	p.Port = text(e.Port)
	switch target := text(e.TargetPort); target {
	case "", "0":
		p.TargetPort = intstr.FromInt32(p.Port)
	case p.TargetPort.String():
	default:
		p.TargetPort = intstr.Parse(target)
		if problems := targetPortProblems(p.TargetPort); len(problems) > 0 {
			return invalid("service-ports/target-port", fmt.Sprintf("%q is no port: %s", target, problems[0]))
		}
	}
	node := text(e.NodePort)
	switch {
	case x.ClusterID == "":
		p.NodePort = node
	case node != 0:
		if x.NodePorts == nil {
			x.NodePorts = map[string]int32{}
		}
		x.NodePorts[p.Name] = node
	}
	return nil
}

func targetPortProblems(p intstr.IntOrString) []string {
	if p.Type == intstr.Int {
		return validation.IsValidPortNum(p.IntValue())
	}
	return validation.IsValidPortName(p.StrVal)
}

// checkServicePorts refuses ports that Kubernetes cannot tell apart.
func checkServicePorts(list []corev1.ServicePort) error {
	type number struct {
		protocol corev1.Protocol
		port     int32
	}
	seen := map[number]string{}
	for _, p := range list {
		if p.Name == "" && len(list) > 1 {
			return invalid("service-ports/name", "is empty: where there are several ports, each needs a name")
		}
		n := number{cmp.Or(p.Protocol, corev1.ProtocolTCP), p.Port}
		if other, twice := seen[n]; twice {
			return invalid("service-ports/port", fmt.Sprintf(
				"%d is the port of %q and of %q: the model has no protocol, so that both are of %s",
				p.Port, other, p.Name, n.protocol))
		}
		seen[n] = p.Name
	}
	return nil
}

// slicePorts are the ports of a Service's EndpointSlices where endpoints are given by uid.
func slicePorts(s *corev1.Service) ([]discoveryv1.EndpointPort, error) {
	var list []discoveryv1.EndpointPort
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if p.TargetPort.Type == intstr.String {
			return nil, invalid("service-ports/target-port", fmt.Sprintf(
				"is %q: where endpoints are given by uid, it needs a number", p.TargetPort.StrVal))
		}
		list = append(list, endpointPort(p.Name, p.TargetPort.IntVal, p.Protocol))
	}
	return list, nil
}

func endpointPort(name string, port int32, protocol corev1.Protocol) discoveryv1.EndpointPort {
	protocol = cmp.Or(protocol, corev1.ProtocolTCP)
	return discoveryv1.EndpointPort{Name: &name, Port: &port, Protocol: &protocol}
}
