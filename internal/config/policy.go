// SPDX-License-Identifier: Apache-2.0

package config

import "errors"

// PolicyMode says whether NetworkPolicies, ClusterNetworkPolicies and SecurityGroups are enforced.
type PolicyMode string

// The modes. With EnforcedPolicies a pod is closed until its node knows what is allowed.
const (
	EnforcedPolicies PolicyMode = "enforced"
	PoliciesOff      PolicyMode = "off"
)

// DefaultPolicyMode is the mode of an agent whose configuration names none.
const DefaultPolicyMode = PoliciesOff

// Policy configures how policies are enforced.
type Policy struct {
	// Mode says whether they are.
	Mode PolicyMode `json:"mode"`
	// AuditDenied has the agent log what policies deny in all namespaces, not only in those that ask for it.
	AuditDenied bool `json:"auditDenied"`
	// TokenFile is what the agent shows the controller, from which it hears of policies.
	TokenFile string `json:"tokenFile"`
}

func (p Policy) validate() error {
	return errors.Join(
		oneOf("policy.mode", p.Mode, EnforcedPolicies, PoliciesOff),
		absolute("policy.tokenFile", p.TokenFile),
	)
}
