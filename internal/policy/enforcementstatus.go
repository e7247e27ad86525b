// SPDX-License-Identifier: Apache-2.0

package policy

import "coelan.io/coelan/internal/intent"

// EnforcementStatus is what has become of a policy, as a controller says.
type EnforcementStatus struct {
	Policy intent.PolicyRef `json:"policy"`
	// Nodes with Ports that it is for; of these, ProgrammedNodes are those where it is in effect.
	Nodes           int      `json:"nodes"`
	ProgrammedNodes int      `json:"programmedNodes"`
	Problems        []string `json:"problems,omitempty"` // what cannot be understood in it
}
