// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
)

// The rows of the Open_vSwitch database that are used, with the columns that
// are used (ovs-vswitchd.conf.db(5)). An optional column is a pointer.

type rowOpenVSwitch struct {
	UUID          string            `ovsdb:"_uuid"`
	Bridges       []string          `ovsdb:"bridges"`
	CurCfg        int               `ovsdb:"cur_cfg"`
	NextCfg       int               `ovsdb:"next_cfg"`
	DatapathTypes []string          `ovsdb:"datapath_types"`
	IfaceTypes    []string          `ovsdb:"iface_types"`
	OVSVersion    *string           `ovsdb:"ovs_version"`
	OtherConfig   map[string]string `ovsdb:"other_config"`
}

type rowBridge struct {
	UUID         string            `ovsdb:"_uuid"`
	Name         string            `ovsdb:"name"`
	DatapathType string            `ovsdb:"datapath_type"`
	FailMode     *string           `ovsdb:"fail_mode"`
	Protocols    []string          `ovsdb:"protocols"`
	Ports        []string          `ovsdb:"ports"`
	OtherConfig  map[string]string `ovsdb:"other_config"`
	ExternalIDs  map[string]string `ovsdb:"external_ids"`
}

type rowPort struct {
	UUID       string   `ovsdb:"_uuid"`
	Name       string   `ovsdb:"name"`
	Interfaces []string `ovsdb:"interfaces"`
}

type rowInterface struct {
	UUID          string            `ovsdb:"_uuid"`
	Name          string            `ovsdb:"name"`
	Type          string            `ovsdb:"type"`
	MAC           *string           `ovsdb:"mac"`
	MACInUse      *string           `ovsdb:"mac_in_use"`
	MTU           *int              `ovsdb:"mtu"`
	MTURequest    *int              `ovsdb:"mtu_request"`
	OFPort        *int              `ovsdb:"ofport"`
	OFPortRequest *int              `ovsdb:"ofport_request"`
	LinkState     *string           `ovsdb:"link_state"`
	Error         *string           `ovsdb:"error"`
	Options       map[string]string `ovsdb:"options"`
	ExternalIDs   map[string]string `ovsdb:"external_ids"`
}

const (
	tableOpenVSwitch = "Open_vSwitch"
	tableBridge      = "Bridge"
	tablePort        = "Port"
	tableInterface   = "Interface"
)

func newModel() (model.ClientDBModel, error) {
	return model.NewClientDBModel("Open_vSwitch", map[string]model.Model{
		tableOpenVSwitch: &rowOpenVSwitch{},
		tableBridge:      &rowBridge{},
		tablePort:        &rowPort{},
		tableInterface:   &rowInterface{},
	})
}

// monitored are the columns to be told about. Statistics are left out on
// purpose: Open vSwitch writes those of every interface every five seconds.
func monitored() []client.MonitorOption {
	o, b, p, i := &rowOpenVSwitch{}, &rowBridge{}, &rowPort{}, &rowInterface{}
	return []client.MonitorOption{
		client.WithTable(o, &o.Bridges, &o.CurCfg, &o.NextCfg, &o.DatapathTypes, &o.IfaceTypes, &o.OVSVersion, &o.OtherConfig),
		client.WithTable(b, &b.Name, &b.DatapathType, &b.FailMode, &b.Protocols, &b.Ports, &b.OtherConfig, &b.ExternalIDs),
		client.WithTable(p, &p.Name, &p.Interfaces),
		client.WithTable(i, &i.Name, &i.Type, &i.MAC, &i.MACInUse, &i.MTU, &i.MTURequest, &i.OFPort,
			&i.OFPortRequest, &i.LinkState, &i.Error, &i.Options, &i.ExternalIDs),
	}
}
