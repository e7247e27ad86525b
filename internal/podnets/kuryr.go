// SPDX-License-Identifier: Apache-2.0

package podnets

import (
	"encoding/json"

	"github.com/google/uuid"
)

// AnnotationKuryrConfig on a NetworkAttachmentDefinition is how Kuryr-Kubernetes says which subnet
// of Neutron an interface is to be on:
//
//	{"subnetId": "UUID", "driverType": "neutron-vif"}
const AnnotationKuryrConfig = "openstack.org/kuryr-config"

// refusedDrivers are the drivers of Kuryr by which an interface is something else than a port that
// Open vSwitch has on the node, and what.
var refusedDrivers = map[string]string{
	"nested-macvlan": "a macvlan of the node's interface, whose port of Neutron lets its address pass",
	"nested-dpdk":    "a port of the node that a program of the pod drives by DPDK",
	"sriov":          "a virtual function of the node's network card",
}

// ordinaryDrivers are those by which a pod has a port of Neutron of its own, as Coelan gives it. A
// VLAN of a trunk is one too: how it comes to the node is not for the pod to see.
var ordinaryDrivers = map[string]bool{"": true, "neutron-vif": true, "nested-vlan": true}

// parseKuryr reads AnnotationKuryrConfig: the id of the subnet. Other keys are ignored, as Kuryr
// does.
func parseKuryr(text string) (subnet string, err error) {
	fail := func(field, value, problem string) (string, error) {
		return "", &Error{Annotation: AnnotationKuryrConfig, Field: field, Value: quote(value), Problem: problem}
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &fields); err != nil || fields == nil {
		return fail("", text, jsonProblem(err))
	}
	e := &element{annotation: AnnotationKuryrConfig, fields: fields, read: map[string]bool{}}
	subnet, driver := e.text("subnetId"), e.text("driverType")
	if e.err != nil {
		return "", e.err
	}
	switch id, err := uuid.Parse(subnet); {
	case subnet == "":
		return fail("", text, "has no subnetId: Coelan has no subnet that is meant without one")
	case err != nil || id.String() != subnet:
		return fail("subnetId", subnet, "is not a UUID as Neutron writes it")
	}
	if what := refusedDrivers[driver]; what != "" {
		return fail("driverType", driver, "asks for "+what+", which Coelan does not make: take the key away for a port of Open "+
			"vSwitch on the subnet, or have Multus call the plugin that makes it")
	}
	if !ordinaryDrivers[driver] {
		return fail("driverType", driver, "is no driver of Kuryr's: take the key away for a port of Open vSwitch on the subnet")
	}
	return subnet, nil
}
