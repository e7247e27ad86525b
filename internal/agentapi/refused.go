// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"time"
)

// Refused is an object with flows that the switch refuses. It is left out; all
// others are in effect.
type Refused struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Error is the switch's, Rule the flow, group or meter that it is about.
	Error string `json:"error"`
	Rule  string `json:"rule"`
	// Since is when it was refused first, as it is now.
	Since time.Time `json:"since"`
	// Effect is what follows from it.
	Effect string `json:"effect"`
}

// String is the object, what is wrong and what follows.
func (r Refused) String() string {
	return r.Kind + " " + r.Name + ": the switch refuses it: " + r.Error + ": " + r.Effect
}
