// SPDX-License-Identifier: Apache-2.0

package nodeconfigs

import (
	"log/slog"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/policystream/server"
)

// Setup adds to a manager what knows the configurations of nodes, which the Hub tells agents, and
// the status of NodeNetworkConfigs, which the leader writes.
func Setup(
	m manager.Manager, a *reconcile.Access, monitor *heartbeat.Monitor, log *slog.Logger, hub *server.Hub,
) error {
	s := newSource(log, m.GetCache(), m.GetCache(), a.Events, monitor)
	hub.Configurations = s
	if err := m.Add(s); err != nil {
		return err
	}
	return (&status{a}).setup(m, monitor)
}
