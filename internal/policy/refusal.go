// SPDX-License-Identifier: Apache-2.0

package policy

import "coelan.io/coelan/internal/intent"

// Refusal is an object that the switch of a node refuses, and that the node's agent leaves out.
type Refusal struct {
	Object intent.PolicyRef // a policy, a Network or a Router
	Reason string           // the switch's error
}
