// SPDX-License-Identifier: Apache-2.0

package nb

// LoadBalancer is a row of the table Load_Balancer.
type LoadBalancer struct {
	UUID            string            `ovsdb:"_uuid"`
	Name            string            `ovsdb:"name"`
	VIPs            map[string]string `ovsdb:"vips"`
	Protocol        *string           `ovsdb:"protocol"`
	SelectionFields []string          `ovsdb:"selection_fields"`
	Options         map[string]string `ovsdb:"options"`
	ExternalIDs     map[string]string `ovsdb:"external_ids"`
}

// LoadBalancerGroup is a row of the table Load_Balancer_Group, which has no external_ids: its name
// is the row's owner.
type LoadBalancerGroup struct {
	UUID          string   `ovsdb:"_uuid"`
	Name          string   `ovsdb:"name"`
	LoadBalancers []string `ovsdb:"load_balancer" nb:"Load_Balancer"`
}

// ChassisTemplateVar is a row of the table Chassis_Template_Var, of which each chassis has at most
// one.
type ChassisTemplateVar struct {
	UUID        string            `ovsdb:"_uuid"`
	Chassis     string            `ovsdb:"chassis"`
	Variables   map[string]string `ovsdb:"variables"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

// NBGlobal is the only row of the table NB_Global. It is the database's own: nothing is desired of
// it.
type NBGlobal struct {
	UUID           string            `ovsdb:"_uuid"`
	Name           string            `ovsdb:"name"`
	NBCfg          int               `ovsdb:"nb_cfg"`
	NBCfgTimestamp int               `ovsdb:"nb_cfg_timestamp"`
	SBCfg          int               `ovsdb:"sb_cfg"`
	SBCfgTimestamp int               `ovsdb:"sb_cfg_timestamp"`
	HVCfg          int               `ovsdb:"hv_cfg"`
	HVCfgTimestamp int               `ovsdb:"hv_cfg_timestamp"`
	Options        map[string]string `ovsdb:"options"`
	ExternalIDs    map[string]string `ovsdb:"external_ids"`
}
