// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"github.com/ovn-kubernetes/libovsdb/client"

	"coelan.io/coelan/internal/backend/ovs/rows"
)

// monitored are the columns to be told about. Statistics are left out on
// purpose: Open vSwitch writes those of every interface every five seconds.
func monitored() []client.MonitorOption {
	o, b, p, i := &rows.OpenVSwitch{}, &rows.Bridge{}, &rows.Port{}, &rows.Interface{}
	controller, manager, datapath := &rows.Controller{}, &rows.Manager{}, &rows.Datapath{}
	return []client.MonitorOption{
		client.WithTable(o, &o.Bridges, &o.CurCfg, &o.NextCfg, &o.DatapathTypes, &o.IfaceTypes, &o.OVSVersion,
			&o.OtherConfig, &o.ExternalIDs, &o.Managers, &o.Datapaths),
		client.WithTable(b, &b.Name, &b.DatapathType, &b.FailMode, &b.Protocols, &b.Ports, &b.OtherConfig,
			&b.ExternalIDs, &b.Controllers),
		client.WithTable(p, &p.Name, &p.Interfaces, &p.VLAN),
		client.WithTable(i, &i.Name, &i.Type, &i.MAC, &i.MACInUse, &i.MTU, &i.MTURequest, &i.OFPort,
			&i.OFPortRequest, &i.LinkState, &i.Error, &i.Options, &i.ExternalIDs, &i.BFD, &i.BFDStatus),
		client.WithTable(controller, &controller.Target, &controller.ExternalIDs),
		client.WithTable(manager, &manager.Target, &manager.ExternalIDs),
		client.WithTable(datapath, &datapath.Capabilities),
	}
}
