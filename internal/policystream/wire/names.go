// SPDX-License-Identifier: Apache-2.0

package wire

// Service is the name of the controllers' Service, and Port the name of its port. Agents find
// controllers by its EndpointSlices.
const (
	Service  = "coelan-controller"
	PortName = "policy"
)

// Audience is the required token audience.
const Audience = "coelan-controller"

// ConfigMap has the certificates that sign the controllers', under RootsKey.
const (
	ConfigMap = "coelan-controller-ca"
	RootsKey  = "ca.crt"
)

// ServerName is the name in the controllers' certificate.
func ServerName(namespace string) string { return Service + "." + namespace + ".svc" }

// MaxUpdate is about how many bytes of items go in one message.
const MaxUpdate = 1 << 20

// MaxMessage is the most bytes that an agent takes in one message: one item is as large as the
// policy that it comes from may be.
const MaxMessage = 64 << 20

// MaxDigests is how many an agent may have.
const MaxDigests = 1 << 21
