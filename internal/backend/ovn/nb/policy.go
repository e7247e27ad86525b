// SPDX-License-Identifier: Apache-2.0

package nb

// ACL is a row of the table ACL.
type ACL struct {
	UUID        string            `ovsdb:"_uuid"`
	Name        *string           `ovsdb:"name"`
	Priority    int               `ovsdb:"priority"`
	Direction   string            `ovsdb:"direction"`
	Match       string            `ovsdb:"match"`
	Action      string            `ovsdb:"action"`
	Log         bool              `ovsdb:"log"`
	Severity    *string           `ovsdb:"severity"`
	Meter       *string           `ovsdb:"meter"`
	Label       int               `ovsdb:"label"`
	Options     map[string]string `ovsdb:"options"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

// PortGroup is a row of the table Port_Group.
type PortGroup struct {
	UUID        string            `ovsdb:"_uuid"`
	Name        string            `ovsdb:"name"`
	Ports       []string          `ovsdb:"ports" nb:"Logical_Switch_Port"`
	ACLs        []string          `ovsdb:"acls" nb:"ACL"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

// AddressSet is a row of the table Address_Set.
type AddressSet struct {
	UUID        string            `ovsdb:"_uuid"`
	Name        string            `ovsdb:"name"`
	Addresses   []string          `ovsdb:"addresses"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

// Meter is a row of the table Meter.
type Meter struct {
	UUID        string            `ovsdb:"_uuid"`
	Name        string            `ovsdb:"name"`
	Unit        string            `ovsdb:"unit"`
	Bands       []string          `ovsdb:"bands" nb:"Meter_Band"`
	Fair        *bool             `ovsdb:"fair"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

// MeterBand is a row of the table Meter_Band.
type MeterBand struct {
	UUID        string            `ovsdb:"_uuid"`
	Action      string            `ovsdb:"action"`
	Rate        int               `ovsdb:"rate"`
	BurstSize   int               `ovsdb:"burst_size"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

// Copp is a row of the table Copp: meters of what ovn-controller is asked for by packets.
type Copp struct {
	UUID        string            `ovsdb:"_uuid"`
	Name        string            `ovsdb:"name"`
	Meters      map[string]string `ovsdb:"meters"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}
