// SPDX-License-Identifier: Apache-2.0

// Package rows has the rows of the Open_vSwitch database that are used, with the columns that are
// used (ovs-vswitchd.conf.db(5)). An optional column is a pointer.
package rows

import "github.com/ovn-kubernetes/libovsdb/model"

// Database is the name of the database.
const Database = "Open_vSwitch"

// OpenVSwitch is the only row of its table.
type OpenVSwitch struct {
	UUID          string            `ovsdb:"_uuid"`
	Bridges       []string          `ovsdb:"bridges"`
	CurCfg        int               `ovsdb:"cur_cfg"`
	NextCfg       int               `ovsdb:"next_cfg"`
	DatapathTypes []string          `ovsdb:"datapath_types"`
	IfaceTypes    []string          `ovsdb:"iface_types"`
	OVSVersion    *string           `ovsdb:"ovs_version"`
	OtherConfig   map[string]string `ovsdb:"other_config"`
	ExternalIDs   map[string]string `ovsdb:"external_ids"`
	// Managers are rows of the table Manager.
	Managers []string `ovsdb:"manager_options"`
	// Datapaths are rows of the table Datapath, by type.
	Datapaths map[string]string `ovsdb:"datapaths"`
}

// Datapath is a row of the table Datapath: all bridges of a type.
type Datapath struct {
	UUID         string            `ovsdb:"_uuid"`
	Capabilities map[string]string `ovsdb:"capabilities"`
}

// Bridge is a row of the table Bridge.
type Bridge struct {
	UUID         string            `ovsdb:"_uuid"`
	Name         string            `ovsdb:"name"`
	DatapathType string            `ovsdb:"datapath_type"`
	FailMode     *string           `ovsdb:"fail_mode"`
	Protocols    []string          `ovsdb:"protocols"`
	Ports        []string          `ovsdb:"ports"`
	Controllers  []string          `ovsdb:"controller"`
	OtherConfig  map[string]string `ovsdb:"other_config"`
	ExternalIDs  map[string]string `ovsdb:"external_ids"`
}

// Port is a row of the table Port.
type Port struct {
	UUID        string            `ovsdb:"_uuid"`
	Name        string            `ovsdb:"name"`
	Interfaces  []string          `ovsdb:"interfaces"`
	VLAN        *int              `ovsdb:"tag"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

// Interface is a row of the table Interface.
type Interface struct {
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
	BFD           map[string]string `ovsdb:"bfd"`
	BFDStatus     map[string]string `ovsdb:"bfd_status"`
}

// Controller is a row of the table Controller: an OpenFlow controller of a bridge.
type Controller struct {
	UUID        string            `ovsdb:"_uuid"`
	Target      string            `ovsdb:"target"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

// Manager is a row of the table Manager: a client of the database.
type Manager struct {
	UUID        string            `ovsdb:"_uuid"`
	Target      string            `ovsdb:"target"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

// The names of the tables.
const (
	TableOpenVSwitch = "Open_vSwitch"
	TableBridge      = "Bridge"
	TablePort        = "Port"
	TableInterface   = "Interface"
	TableController  = "Controller"
	TableManager     = "Manager"
	TableDatapath    = "Datapath"
)

// Model are the tables with their rows. An error is a mistake in a row's tags.
func Model() (model.ClientDBModel, error) {
	return model.NewClientDBModel(Database, map[string]model.Model{
		TableOpenVSwitch: &OpenVSwitch{},
		TableBridge:      &Bridge{},
		TablePort:        &Port{},
		TableInterface:   &Interface{},
		TableController:  &Controller{},
		TableManager:     &Manager{},
		TableDatapath:    &Datapath{},
	})
}
