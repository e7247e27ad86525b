// SPDX-License-Identifier: Apache-2.0

package services

import (
	"slices"

	"coelan.io/coelan/internal/intent"
)

// apiServers is the Service of the API servers.
const apiServers = "default/kubernetes"

// keepAPIServers leaves the Service of the API servers the endpoints that it had last. An API
// server that ends takes its own away, and the last one leaves none; until one is back nothing else
// can say where it will be. A client that tries reaches it as soon as it is back, one that is
// refused might not be told that it is.
func keepAPIServers(last intent.Service, changed []intent.Service) {
	i := slices.IndexFunc(changed, func(v intent.Service) bool {
		return v.Namespace+"/"+v.Name == apiServers
	})
	if i < 0 {
		return
	}
	now := &changed[i]
	for p := range now.Ports {
		port := &now.Ports[p]
		if len(port.Endpoints) > 0 {
			continue
		}
		at := slices.IndexFunc(last.Ports, func(q intent.ServicePort) bool {
			return q.Name == port.Name && q.Protocol == port.Protocol && q.IPv6 == port.IPv6
		})
		if at >= 0 {
			port.Endpoints = last.Ports[at].Endpoints
		}
	}
}
