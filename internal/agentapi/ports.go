// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"coelan.io/coelan/internal/attachment"
)

// PortInfo is an element of the answer to GET /v1/ports.
type PortInfo struct {
	attachment.Attachment
	// Ready says that packets can pass; Actual and Error are what Open vSwitch says of the port.
	Ready  bool   `json:"ready"`
	Actual int    `json:"actualOFPort"`
	Error  string `json:"error,omitempty"`
	// Neutron is the UUID of the port in Neutron; empty: it is none, or not known.
	Neutron string `json:"neutron,omitempty"`
}
