// SPDX-License-Identifier: Apache-2.0

package openflow

func (a OutputAction) String() string           { return "" }
func (a OutputAction) appendTo(b []byte) []byte { return b }

func (a OutputFieldAction) String() string           { return "" }
func (a OutputFieldAction) appendTo(b []byte) []byte { return b }

func (a GroupAction) String() string           { return "" }
func (a GroupAction) appendTo(b []byte) []byte { return b }

func (a MeterAction) String() string           { return "" }
func (a MeterAction) appendTo(b []byte) []byte { return b }

func (a SetFieldAction) String() string           { return "" }
func (a SetFieldAction) appendTo(b []byte) []byte { return b }

func (a MoveAction) String() string           { return "" }
func (a MoveAction) appendTo(b []byte) []byte { return b }

func (a PushVLANAction) String() string           { return "" }
func (a PushVLANAction) appendTo(b []byte) []byte { return b }

func (a simpleAction) String() string           { return "" }
func (a simpleAction) appendTo(b []byte) []byte { return b }

func (a SetQueueAction) String() string           { return "" }
func (a SetQueueAction) appendTo(b []byte) []byte { return b }

func (a ResubmitAction) String() string           { return "" }
func (a ResubmitAction) appendTo(b []byte) []byte { return b }

func (a ConjunctionAction) String() string           { return "" }
func (a ConjunctionAction) appendTo(b []byte) []byte { return b }

func (a NoteAction) String() string           { return "" }
func (a NoteAction) appendTo(b []byte) []byte { return b }

func (a PushAction) String() string           { return "" }
func (a PushAction) appendTo(b []byte) []byte { return b }

func (a PopAction) String() string           { return "" }
func (a PopAction) appendTo(b []byte) []byte { return b }

func (a CloneAction) String() string           { return "" }
func (a CloneAction) appendTo(b []byte) []byte { return b }

func (a CheckPktLargerAction) String() string           { return "" }
func (a CheckPktLargerAction) appendTo(b []byte) []byte { return b }

func (a MultipathAction) String() string           { return "" }
func (a MultipathAction) appendTo(b []byte) []byte { return b }

func (a UnknownAction) String() string           { return "" }
func (a UnknownAction) appendTo(b []byte) []byte { return b }

func (a CT) String() string           { return "" }
func (a CT) appendTo(b []byte) []byte { return b }

func (a NAT) String() string           { return "" }
func (a NAT) appendTo(b []byte) []byte { return b }

func (a Controller) String() string           { return "" }
func (a Controller) appendTo(b []byte) []byte { return b }

func (a Learn) String() string           { return "" }
func (a Learn) appendTo(b []byte) []byte { return b }

func (*Hello) msgType() uint8             { return 0 }
func (*Hello) appendBody(b []byte) []byte { return b }

func (*Error) msgType() uint8             { return 0 }
func (*Error) appendBody(b []byte) []byte { return b }

func (*EchoRequest) msgType() uint8             { return 0 }
func (*EchoRequest) appendBody(b []byte) []byte { return b }

func (*EchoReply) msgType() uint8             { return 0 }
func (*EchoReply) appendBody(b []byte) []byte { return b }

func (*FeaturesRequest) msgType() uint8             { return 0 }
func (*FeaturesRequest) appendBody(b []byte) []byte { return b }

func (*Features) msgType() uint8             { return 0 }
func (*Features) appendBody(b []byte) []byte { return b }

func (*GetConfigRequest) msgType() uint8             { return 0 }
func (*GetConfigRequest) appendBody(b []byte) []byte { return b }

func (*GetConfigReply) msgType() uint8             { return 0 }
func (*GetConfigReply) appendBody(b []byte) []byte { return b }

func (*SetConfig) msgType() uint8             { return 0 }
func (*SetConfig) appendBody(b []byte) []byte { return b }

func (*BarrierRequest) msgType() uint8             { return 0 }
func (*BarrierRequest) appendBody(b []byte) []byte { return b }

func (*BarrierReply) msgType() uint8             { return 0 }
func (*BarrierReply) appendBody(b []byte) []byte { return b }

func (*PacketIn2) msgType() uint8             { return 0 }
func (*PacketIn2) appendBody(b []byte) []byte { return b }

func (*Resume) msgType() uint8             { return 0 }
func (*Resume) appendBody(b []byte) []byte { return b }

func (*PacketOut) msgType() uint8             { return 0 }
func (*PacketOut) appendBody(b []byte) []byte { return b }

func (*FlowRemoved) msgType() uint8             { return 0 }
func (*FlowRemoved) appendBody(b []byte) []byte { return b }

func (*PortStatus) msgType() uint8             { return 0 }
func (*PortStatus) appendBody(b []byte) []byte { return b }

func (*RoleRequest) msgType() uint8             { return 0 }
func (*RoleRequest) appendBody(b []byte) []byte { return b }

func (*RoleReply) msgType() uint8             { return 0 }
func (*RoleReply) appendBody(b []byte) []byte { return b }

func (*SetAsync) msgType() uint8             { return 0 }
func (*SetAsync) appendBody(b []byte) []byte { return b }

func (*BundleControl) msgType() uint8             { return 0 }
func (*BundleControl) appendBody(b []byte) []byte { return b }

func (*BundleAdd) msgType() uint8             { return 0 }
func (*BundleAdd) appendBody(b []byte) []byte { return b }

func (*SetPacketInFormat) msgType() uint8             { return 0 }
func (*SetPacketInFormat) appendBody(b []byte) []byte { return b }

func (*SetControllerID) msgType() uint8             { return 0 }
func (*SetControllerID) appendBody(b []byte) []byte { return b }

func (*TLVTableMod) msgType() uint8             { return 0 }
func (*TLVTableMod) appendBody(b []byte) []byte { return b }

func (*TLVTableRequest) msgType() uint8             { return 0 }
func (*TLVTableRequest) appendBody(b []byte) []byte { return b }

func (*TLVTableReply) msgType() uint8             { return 0 }
func (*TLVTableReply) appendBody(b []byte) []byte { return b }

func (*CTFlushZone) msgType() uint8             { return 0 }
func (*CTFlushZone) appendBody(b []byte) []byte { return b }

func (*CTFlush) msgType() uint8             { return 0 }
func (*CTFlush) appendBody(b []byte) []byte { return b }

func (*Experimenter) msgType() uint8             { return 0 }
func (*Experimenter) appendBody(b []byte) []byte { return b }

func (*Unknown) msgType() uint8             { return 0 }
func (*Unknown) appendBody(b []byte) []byte { return b }

func (*FlowMod) msgType() uint8             { return 0 }
func (*FlowMod) appendBody(b []byte) []byte { return b }

func (*GroupMod) msgType() uint8             { return 0 }
func (*GroupMod) appendBody(b []byte) []byte { return b }

func (*MeterMod) msgType() uint8             { return 0 }
func (*MeterMod) appendBody(b []byte) []byte { return b }

func (*MultipartRequest) msgType() uint8             { return 0 }
func (*MultipartRequest) appendBody(b []byte) []byte { return b }

func (*MultipartReply) msgType() uint8             { return 0 }
func (*MultipartReply) appendBody(b []byte) []byte { return b }

func (*DescRequest) multipartType() uint16      { return 0 }
func (*DescRequest) appendBody(b []byte) []byte { return b }

func (*Desc) multipartType() uint16      { return 0 }
func (*Desc) appendBody(b []byte) []byte { return b }

func (*FlowDescRequest) multipartType() uint16      { return 0 }
func (*FlowDescRequest) appendBody(b []byte) []byte { return b }

func (*TableStatsRequest) multipartType() uint16      { return 0 }
func (*TableStatsRequest) appendBody(b []byte) []byte { return b }

func (*PortStatsRequest) multipartType() uint16      { return 0 }
func (*PortStatsRequest) appendBody(b []byte) []byte { return b }

func (*GroupStatsRequest) multipartType() uint16      { return 0 }
func (*GroupStatsRequest) appendBody(b []byte) []byte { return b }

func (*GroupDescRequest) multipartType() uint16      { return 0 }
func (*GroupDescRequest) appendBody(b []byte) []byte { return b }

func (*MeterStatsRequest) multipartType() uint16      { return 0 }
func (*MeterStatsRequest) appendBody(b []byte) []byte { return b }

func (*MeterConfigRequest) multipartType() uint16      { return 0 }
func (*MeterConfigRequest) appendBody(b []byte) []byte { return b }

func (*PortDescRequest) multipartType() uint16      { return 0 }
func (*PortDescRequest) appendBody(b []byte) []byte { return b }

func (*FlowMonitorRequest) multipartType() uint16      { return 0 }
func (*FlowMonitorRequest) appendBody(b []byte) []byte { return b }

func (FlowDescs) multipartType() uint16      { return 0 }
func (FlowDescs) appendBody(b []byte) []byte { return b }

func (TableStats) multipartType() uint16      { return 0 }
func (TableStats) appendBody(b []byte) []byte { return b }

func (PortStats) multipartType() uint16      { return 0 }
func (PortStats) appendBody(b []byte) []byte { return b }

func (GroupStats) multipartType() uint16      { return 0 }
func (GroupStats) appendBody(b []byte) []byte { return b }

func (GroupDescs) multipartType() uint16      { return 0 }
func (GroupDescs) appendBody(b []byte) []byte { return b }

func (MeterStats) multipartType() uint16      { return 0 }
func (MeterStats) appendBody(b []byte) []byte { return b }

func (MeterConfigs) multipartType() uint16      { return 0 }
func (MeterConfigs) appendBody(b []byte) []byte { return b }

func (PortDescs) multipartType() uint16      { return 0 }
func (PortDescs) appendBody(b []byte) []byte { return b }

func (FlowUpdates) multipartType() uint16      { return 0 }
func (FlowUpdates) appendBody(b []byte) []byte { return b }
