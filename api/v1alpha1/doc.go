// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the API group coelan.io: Networks, Routers, Ports, the blocks of addresses
// that nodes hand out, the pools of addresses of Services, and SecurityGroups.
//
// +kubebuilder:object:generate=true
// +groupName=coelan.io
package v1alpha1
