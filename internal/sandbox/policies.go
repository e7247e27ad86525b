// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"

	"coelan.io/coelan/internal/sandbox/artifact"
)

// PolicyChannel is one of upstream's two definitions of ClusterNetworkPolicies.
type PolicyChannel string

// What is settled of them, and that with what may still change.
const (
	StandardPolicies     PolicyChannel = "standard"
	ExperimentalPolicies PolicyChannel = "experimental"
)

// DefinePolicies makes ClusterNetworkPolicies known to the cluster, as upstream of them does.
func (s *Sandbox) DefinePolicies(ctx context.Context, channel PolicyChannel) error {
	if err := s.cache.Prepare(ctx, artifact.Definitions); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "apply", "-f", s.cache.PolicyDefinition(string(channel))); err != nil {
		return err
	}
	return s.waitEstablished(ctx, "clusternetworkpolicies.policy.networking.k8s.io")
}
