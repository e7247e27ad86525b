// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// PolicyMode says whether NetworkPolicies, ClusterNetworkPolicies and SecurityGroups are enforced.
type PolicyMode string

// The modes. With EnforcedPolicies a pod is closed until its node knows what is allowed.
const (
	EnforcedPolicies PolicyMode = "enforced"
	PoliciesOff      PolicyMode = "off"
)

// DefaultPolicyMode is the mode of an agent if its configuration names none.
const DefaultPolicyMode = EnforcedPolicies

// UnmarshalJSON takes off as YAML 1.1 does, which is false, too; Validate refuses other strings
// than the constants.
func (m *PolicyMode) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, []byte("false")) {
		*m = PoliciesOff
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("policy.mode: %s is not one of %s, %s", data, EnforcedPolicies, PoliciesOff)
	}
	*m = PolicyMode(text)
	return nil
}

// Policy configures how policies are enforced.
type Policy struct {
	// Mode says whether they are.
	Mode PolicyMode `json:"mode"`
	// AuditDenied has the agent log what policies deny in all namespaces, not only in those that
	// ask for it.
	AuditDenied bool `json:"auditDenied"`
	// TokenFile has the token that authenticates the agent to the controller,
	// which sends it policies.
	TokenFile string `json:"tokenFile"`
	// ControllerPort is the controller's TCP port for agents, which pods are kept from;
	// 0: there is none.
	ControllerPort int `json:"controllerPort"`
}

func (p Policy) validate() error {
	var port error
	if p.ControllerPort < 0 || p.ControllerPort > 65535 {
		port = fmt.Errorf("policy.controllerPort: %d is not between 0 and 65535", p.ControllerPort)
	}
	return errors.Join(
		port,
		oneOf("policy.mode", p.Mode, EnforcedPolicies, PoliciesOff),
		absolute("policy.tokenFile", p.TokenFile),
	)
}
