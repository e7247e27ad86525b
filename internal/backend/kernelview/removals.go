// SPDX-License-Identifier: Apache-2.0

package kernelview

import (
	"log/slog"

	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
)

// Removals are what package hostnet has put into the node's kernel, in the order in which it is
// removed. Nothing may keep it any more.
func Removals() []backend.Removal {
	return []backend.Removal{
		{What: "routes", Do: removeRoutes},
		{What: "nftables table coelan", Do: hostnet.RemoveSNAT},
		{What: "nftables table coelan of network cards", Do: hostnet.RemoveSwitchOnly},
		{What: "nftables table coelan-services", Do: hostnet.RemoveServices},
		{What: "nftables table coelan-hostports", Do: hostnet.RemoveHostPorts},
	}
}

// removeRoutes leaves none of our routes. Those through the gateway interface have gone with it.
func removeRoutes() error {
	h, err := hostnet.New(slog.New(slog.DiscardHandler), "")
	if err != nil {
		return err
	}
	defer h.Close()
	return h.RemoveRoutes()
}
