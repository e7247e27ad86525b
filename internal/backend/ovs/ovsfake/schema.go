// SPDX-License-Identifier: Apache-2.0

package ovsfake

import (
	"encoding/json"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"coelan.io/coelan/internal/backend/ovs/rows"
)

// schemaText is the part of Open vSwitch's schema (ovs: vswitchd/vswitch.ovsschema) that Coelan
// uses, with its references, indexes and limits.
const schemaText = `{
"name": "Open_vSwitch", "version": "8.3.1", "tables": {
  "Open_vSwitch": {"isRoot": true, "maxRows": 1, "columns": {
    "bridges": {"type": {"key": {"type": "uuid", "refTable": "Bridge"}, "min": 0, "max": "unlimited"}},
    "manager_options": {"type": {"key": {"type": "uuid", "refTable": "Manager"}, "min": 0, "max": "unlimited"}},
    "datapaths": {"type": {"key": "string", "value": {"type": "uuid", "refTable": "Datapath"},
      "min": 0, "max": "unlimited"}},
    "cur_cfg": {"type": "integer"},
    "next_cfg": {"type": "integer"},
    "datapath_types": {"type": {"key": "string", "min": 0, "max": "unlimited"}},
    "iface_types": {"type": {"key": "string", "min": 0, "max": "unlimited"}},
    "ovs_version": {"type": {"key": "string", "min": 0, "max": 1}},
    "other_config": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}},
    "external_ids": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}}},
  "Bridge": {"indexes": [["name"]], "columns": {
    "name": {"type": "string", "mutable": false},
    "datapath_type": {"type": "string"},
    "fail_mode": {"type": {"key": {"type": "string", "enum": ["set", ["standalone", "secure"]]}, "min": 0, "max": 1}},
    "protocols": {"type": {"key": {"type": "string", "enum": ["set", ["OpenFlow10", "OpenFlow11",
      "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"]]}, "min": 0, "max": "unlimited"}},
    "ports": {"type": {"key": {"type": "uuid", "refTable": "Port"}, "min": 0, "max": "unlimited"}},
    "controller": {"type": {"key": {"type": "uuid", "refTable": "Controller"}, "min": 0, "max": "unlimited"}},
    "other_config": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}},
    "external_ids": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}}},
  "Port": {"indexes": [["name"]], "columns": {
    "name": {"type": "string", "mutable": false},
    "interfaces": {"type": {"key": {"type": "uuid", "refTable": "Interface"}, "min": 1, "max": "unlimited"}},
    "tag": {"type": {"key": {"type": "integer", "minInteger": 0, "maxInteger": 4095}, "min": 0, "max": 1}},
    "external_ids": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}}},
  "Controller": {"columns": {
    "target": {"type": "string"},
    "external_ids": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}}},
  "Manager": {"indexes": [["target"]], "columns": {
    "target": {"type": "string"},
    "external_ids": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}}},
  "Datapath": {"columns": {
    "capabilities": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}}},
  "Interface": {"indexes": [["name"]], "columns": {
    "name": {"type": "string", "mutable": false},
    "type": {"type": "string"},
    "mac": {"type": {"key": "string", "min": 0, "max": 1}},
    "mac_in_use": {"type": {"key": "string", "min": 0, "max": 1}},
    "mtu": {"type": {"key": "integer", "min": 0, "max": 1}},
    "mtu_request": {"type": {"key": {"type": "integer", "minInteger": 68, "maxInteger": 65535}, "min": 0, "max": 1}},
    "ofport": {"type": {"key": "integer", "min": 0, "max": 1}},
    "ofport_request": {"type": {"key": {"type": "integer", "minInteger": 1, "maxInteger": 65279}, "min": 0, "max": 1}},
    "link_state": {"type": {"key": {"type": "string", "enum": ["set", ["up", "down"]]}, "min": 0, "max": 1}},
    "error": {"type": {"key": "string", "min": 0, "max": 1}},
    "options": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}},
    "external_ids": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}},
    "bfd": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}},
    "bfd_status": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}}}
}}`

func parseSchema() (ovsdb.DatabaseSchema, model.ClientDBModel, error) {
	var schema ovsdb.DatabaseSchema
	if err := json.Unmarshal([]byte(schemaText), &schema); err != nil {
		return schema, model.ClientDBModel{}, err
	}
	m, err := rows.Model()
	return schema, m, err
}
