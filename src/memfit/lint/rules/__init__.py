"""All rules: one file each, which is also its documentation; a new one needs a file and a line here."""

from memfit.lint.rules.accumulated_sum_not_averaged import AccumulatedSumNotAveraged
from memfit.lint.rules.accumulator_never_reset import AccumulatorNeverReset
from memfit.lint.rules.augmentation_inside_model import AugmentationInsideModel
from memfit.lint.rules.cache_after_augmentation import CacheAfterAugmentation
from memfit.lint.rules.cache_after_batch import CacheAfterBatch
from memfit.lint.rules.cache_before_resize import CacheBeforeResize
from memfit.lint.rules.cache_of_in_memory_array import CacheOfInMemoryArray
from memfit.lint.rules.changing_python_argument import ChangingPythonArgument
from memfit.lint.rules.dataset_stacked_in_memory import DatasetStackedInMemory
from memfit.lint.rules.decoding_without_batching import DecodingWithoutBatching
from memfit.lint.rules.division_without_accumulation import DivisionWithoutAccumulation
from memfit.lint.rules.float16_softmax import Float16Softmax
from memfit.lint.rules.function_defined_in_loop import FunctionDefinedInLoop
from memfit.lint.rules.image_array_passed_to_fit import ImageArrayPassedToFit
from memfit.lint.rules.layer_created_in_call import LayerCreatedInCall
from memfit.lint.rules.loss_history_of_tensors import LossHistoryOfTensors
from memfit.lint.rules.memory_growth_for_one_gpu import MemoryGrowthForOneGpu
from memfit.lint.rules.memory_growth_too_late import MemoryGrowthTooLate
from memfit.lint.rules.memory_growth_with_limit import MemoryGrowthWithLimit
from memfit.lint.rules.missing_prefetch import MissingPrefetch
from memfit.lint.rules.models_built_in_loop import ModelsBuiltInLoop
from memfit.lint.rules.persistent_tape_not_deleted import PersistentTapeNotDeleted
from memfit.lint.rules.persistent_tape_used_once import PersistentTapeUsedOnce
from memfit.lint.rules.pipeline_on_gpu import PipelineOnGpu
from memfit.lint.rules.predict_in_loop import PredictInLoop
from memfit.lint.rules.prefetch_of_many_batches import PrefetchOfManyBatches
from memfit.lint.rules.shuffle_of_decoded_images import ShuffleOfDecodedImages
from memfit.lint.rules.softmax_before_logits_loss import SoftmaxBeforeLogitsLoss
from memfit.lint.rules.stacked_copies_summed import StackedCopiesSummed
from memfit.lint.rules.tensor_appended_in_loop import TensorAppendedInLoop
from memfit.lint.rules.tensor_kept_by_layer import TensorKeptByLayer
from memfit.lint.rules.unbatched_training_step import UnbatchedTrainingStep
from memfit.lint.rules.unrolled_training_steps import UnrolledTrainingSteps
from memfit.lint.rules.validation_split_of_image_array import ValidationSplitOfImageArray
from memfit.lint.rules.variable_created_in_step import VariableCreatedInStep

ALL = (
    DatasetStackedInMemory,
    ImageArrayPassedToFit,
    ValidationSplitOfImageArray,
    DecodingWithoutBatching,
    UnbatchedTrainingStep,
    ShuffleOfDecodedImages,
    CacheAfterAugmentation,
    CacheAfterBatch,
    CacheBeforeResize,
    CacheOfInMemoryArray,
    TensorAppendedInLoop,
    LossHistoryOfTensors,
    PrefetchOfManyBatches,
    MissingPrefetch,
    PipelineOnGpu,
    AugmentationInsideModel,
    FunctionDefinedInLoop,
    ChangingPythonArgument,
    ModelsBuiltInLoop,
    PredictInLoop,
    MemoryGrowthTooLate,
    MemoryGrowthForOneGpu,
    MemoryGrowthWithLimit,
    DivisionWithoutAccumulation,
    AccumulatorNeverReset,
    AccumulatedSumNotAveraged,
    PersistentTapeNotDeleted,
    PersistentTapeUsedOnce,
    VariableCreatedInStep,
    LayerCreatedInCall,
    StackedCopiesSummed,
    TensorKeptByLayer,
    UnrolledTrainingSteps,
    SoftmaxBeforeLogitsLoss,
    Float16Softmax,
)
