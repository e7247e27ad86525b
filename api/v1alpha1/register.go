// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of all types of this package.
var GroupVersion = schema.GroupVersion{Group: "coelan.io", Version: "v1alpha1"}

var builder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Network{}, &NetworkList{}, &Router{}, &RouterList{},
		&Port{}, &PortList{}, &AddressBlock{}, &AddressBlockList{},
		&LoadBalancerPool{}, &LoadBalancerPoolList{}, &SecurityGroup{}, &SecurityGroupList{},
		&FloatingIP{}, &FloatingIPList{}, &Egress{}, &EgressList{},
		&NodeNetworkConfig{}, &NodeNetworkConfigList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
})

// AddToScheme registers the types of this package.
var AddToScheme = builder.AddToScheme
