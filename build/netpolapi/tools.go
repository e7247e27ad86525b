//go:build tools

// Package tools pins upstream's suite of tests of ClusterNetworkPolicy. Its module has the
// definition of that kind, too.
package tools

import (
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	_ "sigs.k8s.io/network-policy-api/apis/v1alpha2"
	_ "sigs.k8s.io/network-policy-api/conformance"
	_ "sigs.k8s.io/network-policy-api/conformance/tests"
	_ "sigs.k8s.io/network-policy-api/conformance/utils/suite"
)
